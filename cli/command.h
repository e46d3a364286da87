// Shared by main.cc and the subcommands. A subcommand is one add_ function: it declares its
// arguments and returns what to run after parsing.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "cli/globals.h"
#include "cli/usage.h"

namespace octavo::cli {

struct Command {
  CLI::App* app = nullptr;
  std::function<int()> run;
};

Command add_formats(CLI::App& program, Globals& globals);
Command add_cast(CLI::App& program, Globals& globals);
Command add_quantize(CLI::App& program, Globals& globals);
Command add_plan(CLI::App& program, Globals& globals);
Command add_verify(CLI::App& program, Globals& globals);
Command add_convert(CLI::App& program, Globals& globals);
Command add_dequantize(CLI::App& program, Globals& globals);
Command add_compare(CLI::App& program, Globals& globals);
Command add_conform(CLI::App& program, Globals& globals);
Command add_eval(CLI::App& program, Globals& globals);
Command add_calibrate(CLI::App& program, Globals& globals);
Command add_inspect(CLI::App& program, Globals& globals);
Command add_generate(CLI::App& program, Globals& globals);
Command add_attention_report(CLI::App& program, Globals& globals);
Command add_doctor(CLI::App& program, Globals& globals);
Command add_completion(CLI::App& program, Globals& globals);

std::vector<std::string> dequantized_dtype_names();  // values of dequantize --dtype

// A subcommand with its one-line description, its examples under --help, and --json.
CLI::App* add_subcommand(CLI::App& program, Globals& globals, const std::string& name,
                         const std::string& description, const std::string& examples);

// The whole command line: parses, runs, reports errors; returns the exit code.
int run_program(int argc, char** argv);

}  // namespace octavo::cli
