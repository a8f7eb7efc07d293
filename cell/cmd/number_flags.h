// Checks the numbers that are given to flags. CLI11's own checks accept "" and -1 for an unsigned number, and its
// messages show what the text was converted to instead of the text.
#pragma once

#include <cstdint>

#include "CLI/CLI.hpp"

namespace cell {

// Accepts only whole numbers from 0 on that fit into 64 bits.
CLI::Validator Count();

// Accepts only whole decimal numbers that fit into 64 bits with a sign.
CLI::Validator SignedNumber();

// Accepts only whole numbers from `low` to `high`.
CLI::Validator WholeNumber(uint64_t low, uint64_t high);

// Accepts only sizes from `low` to `high` bytes, such as 4096, 64K or 1G, and replaces them by the number of bytes. To
// be used with Option::transform. CLI::AsSizeValue alone would accept a sign.
CLI::Validator SizeInBytes(uint64_t low, uint64_t high);

// Accepts only numbers from `low` to `high`. CLI::Range would accept nan.
CLI::Validator Between(double low, double high);

}  // namespace cell
