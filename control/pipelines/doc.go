// Package pipelines keeps what is replicated where: pipelines, and their versions,
// which are immutable graphs of sources, sinks and edges.
//
// A version compiles to routes, one for each pair of a source and a sink that an
// edge joins; a run executes one route. Each route is a [pipeline.Document], as
// the command line runs it from a file: that one form is checked, hashed,
// exported, and run.
package pipelines
