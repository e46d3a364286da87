"""What other libraries make of the same inputs: scales and codes, by their own functions and by the
formulas of docs/numerics/peer-arith.md."""
