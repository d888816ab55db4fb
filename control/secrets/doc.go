// Package secrets keeps secrets of connections and rules out of everything else:
// what refers to one holds a [Ref], and only the moment of use resolves it
// (invariant 10).
//
// Providers resolve references. Env reads variables of the process that the
// operator released; Local keeps values in the store under envelope encryption:
// each secret has a data key of its own (AES-256-GCM), which the installation's
// master key wraps. Rotating the master key wraps the data keys anew and leaves
// the values alone.
package secrets
