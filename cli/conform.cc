// octavo conform: OCP MX 1.0, clause by clause, of octavo or of another program.

#include <cstdio>
#include <iostream>
#include <memory>

#include "cli/command.h"
#include "cli/conform/child_program.h"
#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "octavo/base/error.h"
#include "octavo/report/conform/conform.h"

namespace octavo::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  octavo conform                                 octavo's own quantizer, dequantizer and product
  octavo conform --exec 'python3 my_mx.py'       those of a program
  octavo conform --exec ./my_mx --timeout 60 --json
  octavo conform --serve                         answer requests, as such a program does

The program gets a line for each request and answers with a line. The first is 'octavo-conform 1',
which it repeats. docs/numerics/mx-conformance.md has the lines and the clauses. The exit code is 1
where something deviates from the standard.)";

struct Arguments {
  std::string program;
  bool has_program = false;
  double timeout = 10;
  bool serve = false;
};

ConformReport of_program(const Arguments& arguments) {
  ChildProgram program(arguments.program, arguments.timeout);
  const std::string greeting = program.ask(std::string(kConformGreeting));
  check(greeting == kConformGreeting, ErrorCode::invalid_argument, "conform", "got '",
        octavo::shown(greeting, 60), "' from '", octavo::shown(arguments.program, 100),
        "'; expected '", kConformGreeting, "', the version of the protocol, as its first line");
  return conform([&](const ConformRequest& request) {
    return parse_reply(program.ask(request_line(request)), request);
  });
}

// A request that cannot be read is answered, too, and the next one is read.
int serve() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::string answer;
    try {
      answer = line == kConformGreeting ? line : reply_line(octavo_conforms(parse_request(line)));
    } catch (const Error& error) {
      answer = text("skip ", reason_of(error));
    }
    print(answer + "\n");
    std::fflush(stdout);
  }
  return kGood;
}

int run(const Arguments& arguments, const Globals& globals) {
  if (arguments.has_program && arguments.program.find_first_not_of(" \t\n") == std::string::npos)
    throw UsageError(
        "[conform] --exec: got an empty command; expected a program, or leave it out "
        "to test octavo itself");
  if (arguments.serve) {
    if (!arguments.program.empty())
      throw UsageError("[conform] got --serve and --exec; expected one of them");
    return serve();
  }
  const ConformReport report =
      arguments.program.empty() ? conform(octavo_conforms) : of_program(arguments);
  const std::int64_t deviations = report.count(ConformVerdict::deviates);
  if (globals.json) {
    print(json_of(report) + "\n");
  } else {
    print(text_of(report));
    print(formatted("\n{} checks: {} conform, {} deviate, {} are choices, {} not offered\n",
                    report.findings.size(), report.count(ConformVerdict::conforms), deviations,
                    report.count(ConformVerdict::chooses),
                    report.count(ConformVerdict::not_offered)));
  }
  return deviations == 0 ? kGood : kFailed;
}

}  // namespace

Command add_conform(CLI::App& program, Globals& globals) {
  CLI::App* app = add_subcommand(program, globals, "conform",
                                 "Test an implementation of MX against the standard, clause by "
                                 "clause",
                                 kExamples);
  auto arguments = std::make_shared<Arguments>();
  app->add_option("--exec", arguments->program,
                  "A program that answers requests, as a shell starts it (default: octavo itself)")
      ->type_name("COMMAND");
  app->add_option("--timeout", arguments->timeout, "Seconds for each answer (default 10)")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.01, 86400.0).description(""));
  app->add_flag("--serve", arguments->serve, "Answer such requests from standard input");
  return {app, [arguments, app, &globals] {
            arguments->has_program = app->count("--exec") > 0;
            return run(*arguments, globals);
          }};
}

}  // namespace octavo::cli
