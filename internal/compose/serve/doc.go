// Package serve puts the control plane, its API and workers together in one
// process. Any number of such processes work on one database, all alike: what one
// is doing when it dies, the others take over.
package serve
