// Package nycflights loads a real data set, all flights that left New York City
// in 2013 with their airlines, airports, planes and weather, into PostgreSQL.
// The demo, the kill harness and tests replicate it. Where it comes from and
// under which licence stands in README.md.
package nycflights
