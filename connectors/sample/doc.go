// Package sample is a source without a system behind it: deterministic rows of
// all logical kinds, by seed, number of rows and number of splits. It is for
// trying things out, tests and measurements.
//
// A row depends on nothing but seed, resource and row number, so any read of any
// split gives the same rows, and a later run with more rows only adds some.
package sample
