// Package ends opens the two ends of a pipeline document and translates the
// document for the engine: for the command line, which reads it from a file, and
// for the workers of the control plane, for which a stored pipeline's route is
// compiled into one.
package ends
