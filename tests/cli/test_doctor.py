"""octavo doctor: which kernels run, and the problems it reports."""

from __future__ import annotations

import os


def test_says_which_kernels_run(octavo):
    report = octavo.good("doctor", "--json").json
    chosen = [backend["name"] for backend in report["backends"] if backend["chosen"]]
    usable = [backend["name"] for backend in report["backends"] if backend["usable"]]
    assert chosen == usable[:1]
    assert report["backends"][-1]["name"] == "reference" and report["backends"][-1]["usable"]
    assert all(backend["reason"] for backend in report["backends"])
    assert report["threads"] == len(os.sched_getaffinity(0))
    assert report["problems"] == []
    text = octavo.good("doctor").out
    assert f"-> {chosen[0]}" in text and "verdict     good" in text


def test_says_what_the_cpus_are(octavo):
    report = octavo.good("doctor", "--json").json
    machine, usable = report["topology"]["machine"], report["topology"]["usable"]
    assert usable["cpus"] == len(os.sched_getaffinity(0))
    assert 1 <= usable["sockets"] <= usable["cores"] <= usable["cpus"]
    assert machine["cpus"] == 0 or machine["cores"] >= usable["cores"]
    products = report["product_threads"]
    assert 1 <= products["count"] <= usable["cores"] and products["reason"]
    text = octavo.good("doctor").out
    assert f"; products {products['count']}: {products['reason']}" in text
    assert "topology    " in text


def test_products_follow_the_switch(octavo):
    report = octavo.good("doctor", "--json", env={"OCTAVO_THREADS": "3"}).json
    assert report["product_threads"] == {"count": 3, "reason": "OCTAVO_THREADS says so"}


def test_checks_every_kernel(octavo):
    for backend in octavo.good("doctor", "--json").json["backends"]:
        wanted = True if backend["usable"] and not backend["name"].startswith("cuda") else None
        assert backend["bits_as_reference"] is wanted


def test_says_what_is_not_there(octavo):
    report = octavo.good("doctor", "--json").json
    if not report["gpu"]["available"]:
        assert (
            "CUDA" in report["gpu"]["reason"]
            and report["gpu"]["reason"] in octavo.good("doctor").out
        )


def test_says_which_parts_are_there(octavo):
    """make and make wheel have all of them: a build that lost one is seen here."""
    assert octavo.good("doctor", "--json").json["unavailable"] == {}
    assert "has         tokenizers; GPTQ" in octavo.good("doctor").out


def test_switches(octavo):
    env = {"OCTAVO_BACKEND": "reference", "OCTAVO_THREADS": "1"}
    report = octavo.good("doctor", "--json", env=env).json
    assert report["environment"] == env
    assert [b["name"] for b in report["backends"] if b["chosen"]] == ["reference"]
    assert report["threads"] == 1


def test_backend_that_is_not_there(octavo):
    result = octavo("doctor", "--json", env={"OCTAVO_BACKEND": "cpu/nope"})
    assert result.code == 1
    assert "cpu/nope" in result.json["problems"][0] and "reference" in result.json["problems"][0]
    assert not any(backend["chosen"] for backend in result.json["backends"])
    assert "problem" in octavo("doctor", env={"OCTAVO_BACKEND": "cpu/nope"}).out


def test_threads_that_are_no_number(octavo):
    for value in ("zero", "0", "-1", "1e3", "99999999999999999999"):
        result = octavo("doctor", "--json", env={"OCTAVO_THREADS": value})
        assert result.code == 1 and value in result.json["problems"][0]
        assert result.json["threads"] is None and result.json["product_threads"] is None


def test_takes_no_arguments(octavo):
    octavo("doctor", "now").refused(2, "'now'")
