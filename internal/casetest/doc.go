// Package casetest holds the cases that people who move data for a living have
// reported, as tests of the whole way: a pipeline document, a run with its state
// file, a real PostgreSQL source, and PostgreSQL, Parquet, JSONL and CSV
// destinations that are read back by other code than ours. Tests are named after
// their cases; the last of them lose and set back state files and destinations
// (P1, P3) and hand the product bad input.
package casetest
