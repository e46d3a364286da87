// How the page looks, and the little that its script does. Colours are variables with a dark set;
// the grades run from red (g0, far below normal weights) over yellow to a calm blue (g4, as normal
// weights) and violet (g6, far above), which the colour blind can tell apart by lightness and
// marks; g7, no error, is green.
#include "octavo/report/page/page_internal.h"

namespace octavo::page {

std::string style() {
  return R"css(
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#1b2027;--soft:#5b6572;--line:#dfe3e8;--accent:#2463a8;
--bar:#8fb1d6;--bar2:#e2a15e;--bar3:#8fb58a;--warn:#b3261e;--none:#e9ecf0;--shade:#f1f4f7;
--k0:#2463a8;--k1:#b3541e;--k2:#2e7d4f;--k3:#7a4fb0;--k4:#a51428;--k5:#5b6572;
--g0:#a51428;--g1:#d6492f;--g2:#f0924f;--g3:#f8d88c;--g4:#a9cbe6;--g5:#b7a6dc;--g6:#7a4fb0;--g7:#b5dcc0}
@media(prefers-color-scheme:dark){:root{--bg:#12161b;--card:#1a2027;--ink:#e4e9ef;--soft:#98a3b0;--line:#2c343d;--accent:#79b4f2;
--bar:#4c7fb5;--bar2:#c98745;--bar3:#5f8f63;--warn:#ff8a7d;--none:#252c34;--shade:#20272f;
--k0:#79b4f2;--k1:#eda36a;--k2:#7cc795;--k3:#bb9aec;--k4:#ff8a7d;--k5:#98a3b0;
--g0:#c92a3e;--g1:#dd5a3c;--g2:#e38a51;--g3:#d9bd72;--g4:#3f6c94;--g5:#7b68ab;--g6:#a678dd;--g7:#3f7a55}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1440px;margin:0 auto;padding:28px 24px 64px}
h1{font-size:1.55rem;line-height:1.25;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:0 0 4px}
h3{font-size:.92rem;margin:0;overflow-wrap:anywhere;font-weight:600}
p{margin:0 0 10px}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:18px 20px;margin-top:18px}
.soft{color:var(--soft)}
.small{font-size:.84rem}
code,.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;font-size:.86em;overflow-wrap:anywhere}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(200px,1fr));gap:14px;margin-top:18px}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 16px;min-width:0}
.card b{display:block;font-size:1.45rem;line-height:1.25;font-weight:650;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.card span{color:var(--soft);font-size:.84rem;overflow-wrap:anywhere}
.card .mono{display:-webkit-box;-webkit-line-clamp:3;-webkit-box-orient:vertical;overflow:hidden}
.card.bad b{color:var(--warn)}
.parts{display:flex;height:18px;border-radius:5px;overflow:hidden;background:var(--none);margin:8px 0}
.parts i{display:block;min-width:2px;border-right:1px solid var(--card)}
.key{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:.84rem;color:var(--soft)}
.key i,.scale i{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:6px;vertical-align:-1px}
.p0{background:#4a7fbb}.p1{background:#5aa897}.p2{background:#c9973f}.p3{background:#9a76b8}.p4{background:#c26a6a}.px{background:#8b95a1}
.g0{--c:var(--g0)}.g1{--c:var(--g1)}.g2{--c:var(--g2)}.g3{--c:var(--g3)}.g4{--c:var(--g4)}.g5{--c:var(--g5)}.g6{--c:var(--g6)}.g7{--c:var(--g7)}.gx{--c:var(--none)}
.tabs>input{position:absolute;opacity:0;pointer-events:none}
.tabs>label{display:inline-block;padding:3px 12px;border:1px solid var(--line);border-radius:6px;font-size:.84rem;cursor:pointer;margin:4px 4px 12px 0;color:var(--soft)}
.tabs>input:checked+label{background:var(--accent);border-color:var(--accent);color:var(--card);font-weight:600}
.tabs>input:focus-visible+label{outline:2px solid var(--accent);outline-offset:2px}
.tabs>.pane{display:none}
.tabs>input:nth-of-type(1):checked~.pane:nth-of-type(1),.tabs>input:nth-of-type(2):checked~.pane:nth-of-type(2){display:block}
.map{margin:10px 0 6px}
.map .row{display:grid;grid-template-columns:minmax(90px,210px) 1fr;gap:10px;align-items:center}
.map .lab{text-align:right;white-space:nowrap;overflow:hidden;text-overflow:ellipsis;direction:rtl;color:var(--soft);font-size:.8rem}
.map .lab bdi{unicode-bidi:isolate;direction:ltr}
.map svg{display:block;width:100%;height:22px;margin:1px 0}
.map rect{fill:var(--c)}
.map rect.hit{cursor:pointer}
.map rect.hit:hover{stroke:var(--ink);stroke-width:2px;vector-effect:non-scaling-stroke}
.map .mark{stroke:var(--ink);stroke-width:3px;vector-effect:non-scaling-stroke;pointer-events:none;fill:none}
.axis{position:relative;height:18px;font-size:.74rem;color:var(--soft)}
.axis span{position:absolute;transform:translateX(-50%)}
.scale{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:.8rem;color:var(--soft);margin:8px 0 10px}
.scale i{background:var(--c)}
.know{border-left:3px solid var(--accent);padding:2px 0 2px 12px;margin:14px 0 0;max-width:76em}
.option{display:inline-block;background:var(--shade);border:1px solid var(--line);border-radius:5px;padding:2px 7px;margin:3px 0;user-select:all}
td details summary{font-weight:400}
section>h3{margin-top:12px}
.spread path{fill:none;vector-effect:non-scaling-stroke;stroke-width:1px;stroke:var(--line)}
.spread .stroke{stroke:var(--bar);stroke-width:1.5px;stroke-opacity:.75}.spread .normal{stroke:var(--ink);stroke-width:2px}
.spread svg{height:30px}.plain{padding-left:2px;list-style:none}
.hists{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,390px),1fr));gap:16px;margin-top:12px}
.hist h3{display:-webkit-box;-webkit-line-clamp:3;-webkit-box-orient:vertical;overflow:hidden}
.hist{border:1px solid var(--line);border-radius:8px;padding:12px 14px;min-width:0}
.hist p{margin:2px 0 8px}
.hist figure{margin:0 0 6px}
.hist figcaption{font-size:.78rem;color:var(--soft)}
.hist svg{display:block;width:100%;height:64px}
.hist .ends{display:flex;justify-content:space-between;align-items:baseline;padding-top:3px;font-size:.74rem;color:var(--soft)}.ends sup{line-height:0}
.b1{fill:var(--bar)}.b2{fill:var(--bar2)}.b3{fill:var(--soft)}.b4{fill:var(--bar3)}
.chart{margin:12px 0 4px}.chart figcaption{font-size:.84rem;font-weight:600}
.chart svg{display:block;width:100%;height:auto;max-width:1200px}.chart text{font-size:12px;fill:var(--soft)}
.chart .rule{stroke:var(--line);stroke-width:1}.chart path{fill:none;stroke-width:2}
.line0{stroke:var(--k0);fill:var(--k0)}.line1{stroke:var(--k1);fill:var(--k1)}.line2{stroke:var(--k2);fill:var(--k2)}
.line3{stroke:var(--k3);fill:var(--k3);stroke-dasharray:7 3}.line4{stroke:var(--k4);fill:var(--k4);stroke-dasharray:7 3}.line5{stroke:var(--k5);fill:var(--k5);stroke-dasharray:7 3}
.chart .mark{stroke:none}
.k0{--c:var(--k0)}.k1{--c:var(--k1)}.k2{--c:var(--k2)}.k3{--c:var(--k3)}.k4{--c:var(--k4)}.k5{--c:var(--k5)}.key i[class^=k]{background:var(--c)}
.tools{display:flex;flex-wrap:wrap;gap:8px 10px;align-items:center;margin:10px 0}
.tools[hidden]{display:none}
.tools input,.tools select{font:inherit;font-size:.9rem;padding:5px 10px;border:1px solid var(--line);border-radius:6px;background:var(--bg);color:var(--ink);min-width:0}
.tools input{flex:1 1 220px}
.wrap{overflow:auto;max-height:78vh;border:1px solid var(--line);border-radius:8px}
table{border-collapse:separate;border-spacing:0;width:100%;font-size:.84rem;font-variant-numeric:tabular-nums}
th,td{padding:5px 6px;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap;vertical-align:top}
thead th{position:sticky;top:0;background:var(--shade);z-index:1;white-space:normal;vertical-align:bottom;font-weight:600;color:var(--soft)}
th button{all:unset;cursor:pointer;font:inherit;color:inherit}
th button:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
th[aria-sort=ascending] button::after{content:" \2191"}
th[aria-sort=descending] button::after{content:" \2193"}
.l{text-align:left}
td.n{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:200px}
td.a{text-align:left;white-space:normal;min-width:210px;color:var(--soft)}
tbody tr:hover td{background:var(--shade)}
td i.dot,li i.dot{display:inline-block;width:10px;height:10px;border-radius:3px;background:var(--c);margin-right:7px}
td.w{color:var(--warn);font-weight:600}
ul{margin:6px 0 0;padding-left:20px}
li{margin-bottom:4px;overflow-wrap:anywhere}
dl{display:grid;grid-template-columns:max-content 1fr;gap:3px 18px;margin:8px 0 0;font-size:.88rem}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere;min-width:0}
summary{cursor:pointer;font-weight:600}
footer{color:var(--soft);font-size:.8rem;margin-top:22px}
@media(max-width:760px){
main{padding:16px 12px 40px}section{padding:14px 14px}.cards{grid-template-columns:1fr 1fr;gap:10px}.card{padding:11px 12px}.card b{font-size:1.15rem}
.map .row{grid-template-columns:1fr;gap:1px}.map .lab{text-align:left;direction:ltr;padding-top:3px}.map .lab.none{display:none}.map svg{height:18px}
.wrap{max-height:none;border:0}
.cardrows,.cardrows tbody,.cardrows tr,.cardrows td{display:block}.cardrows thead{display:none}
.cardrows tr{display:grid;grid-template-columns:repeat(3,1fr);gap:2px 10px;border:1px solid var(--line);border-radius:8px;padding:9px 11px;margin-bottom:8px}
.cardrows tr[hidden]{display:none}
.cardrows td{border:0;padding:0;text-align:left;min-width:0;white-space:normal;overflow-wrap:anywhere}
.cardrows td.n,.cardrows td.a{grid-column:1/-1;min-width:0}.cardrows td.n{font-weight:600}.cardrows td.a:empty{display:none}
.cardrows td[data-l]::before{content:attr(data-l);display:block;font-size:.72rem;font-weight:400;color:var(--soft)}
dl{grid-template-columns:1fr}dt{margin-top:6px}}
@media print{.wrap{max-height:none;overflow:visible}.tools{display:none}section,.card,.hist{break-inside:avoid}}
)css";
}

// Sorting by the text of cells, or by data-v where the text is formatted; a search for words that
// must all occur; a click in the map searches for that module.
std::string script() {
  return R"js(
(function(){'use strict';
function activate(table){
var body=table.tBodies[0],rows=[].slice.call(body.rows),heads=[].slice.call(table.tHead.rows[0].cells);
var tools=table.parentElement.previousElementSibling,search=tools.querySelector('input'),order=tools.querySelector('select'),count=tools.querySelector('span');
tools.hidden=false;
function value(row,at){var cell=row.cells[at],text=cell.getAttribute('data-v');if(text===null)text=cell.textContent;
var number=text==='inf'?Infinity:text==='-inf'?-Infinity:parseFloat(text);return heads[at].className==='l'||isNaN(number)?text:number}
function compare(a,b){var x=typeof a==='number',y=typeof b==='number';if(x&&y)return a<b?-1:a>b?1:0;if(x!==y)return x?-1:1;
return a.localeCompare(b,undefined,{numeric:true})}
function sort(at,down){var keyed=rows.map(function(row,i){return[value(row,at),i,row]});
keyed.sort(function(a,b){var c=compare(a[0],b[0]);return(down?-c:c)||a[1]-b[1]});
var all=document.createDocumentFragment();keyed.forEach(function(k){all.appendChild(k[2])});body.appendChild(all);
heads.forEach(function(head,i){head.setAttribute('aria-sort',i===at?(down?'descending':'ascending'):'none')});order.value=at+(down?'d':'a')}
heads.forEach(function(head,at){var name=head.textContent,button=document.createElement('button');button.type='button';button.textContent=name;
head.textContent='';head.appendChild(button);button.addEventListener('click',function(){sort(at,head.getAttribute('aria-sort')==='ascending')});
[['a',' \u2191'],['d',' \u2193']].forEach(function(way){var option=document.createElement('option');option.value=at+way[0];option.textContent=name+way[1];order.appendChild(option)})});
order.addEventListener('change',function(){if(order.value!=='')sort(parseInt(order.value,10),order.value.slice(-1)==='d')});
var texts=rows.map(function(row){return row.textContent.toLowerCase()});
function filter(){var words=search.value.toLowerCase().split(/\s+/).filter(Boolean),shown=0;
rows.forEach(function(row,i){var hit=words.every(function(word){return texts[i].indexOf(word)>=0});row.hidden=!hit;if(hit)shown++});
count.textContent=(shown===rows.length?'':shown+' of ')+rows.length+' '+table.id}
search.addEventListener('input',filter);filter();
if(table.id==='tensors')document.addEventListener('click',function(event){var rect=event.target;if(!rect.classList||!rect.classList.contains('hit'))return;
search.value=rect.getAttribute('data-m');filter();document.getElementById('table').scrollIntoView()})}
[].forEach.call(document.querySelectorAll('table.sortable'),activate);
})();
)js";
}

}  // namespace octavo::page
