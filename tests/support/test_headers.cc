// The program whose build makes the tests' precompiled header; it has no tests of its own.
