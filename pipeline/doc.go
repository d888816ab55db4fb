// Package pipeline reads the pipeline document: which source is replicated into
// which sink, resource by resource, under which policies and bounds.
//
// A document is YAML (JSON is YAML too). It is read strictly: an unknown key, a
// key twice, a value of the wrong kind are errors with line and column, and every
// problem of a document is reported at once. References of the form ${NAME} are
// replaced from the environment in the values that connectors and engine get;
// they stay references in [Marshal], in [Document.Hash] and in every message, so
// that no secret leaves through the document (invariant 10).
//
// The package knows connectors only as engine specs, which its caller passes.
package pipeline
