// Package projection folds the facts of runs into what people ask for: the
// history of runs and their resources, hourly metrics, costs, and the health of
// pipelines; and it finds the events that notification rules want.
//
// A run's facts are folded in their order, from the number up to which the
// stored row says they are, in one transaction with that number. What tells us
// that a run has new facts may therefore come late, twice or in any order, and
// several processes may fold at once (invariant 4): a run's row is locked by one
// of them, and other runs go on beside it.
//
// Metrics count endings: a run that fails, is resumed and completes has two, each
// with what it did since the one before. So an hour that is past does not change,
// and folding all facts anew gives the same rows.
package projection
