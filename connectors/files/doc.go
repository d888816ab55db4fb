// Package files writes tables as Parquet, JSONL or CSV files into a local folder
// or an S3 bucket, each published by one manifest.
//
// Layout, below the configured path (P11):
//
//	<schema>.<table>/manifest.json
//	<schema>.<table>/<run>/<split>/<epoch>-<claim>-<digest>.<ext>
//
// Data files are written under names that carry claim and digest, never
// overwritten, and registered with the run's checkpoint. Nothing is visible to a
// reader of the manifest until Publish changes it, by compare-and-swap: a reader
// never sees half a run, and an older run never replaces a newer one. What the
// manifest doesn't name is swept after the publish.
//
// Values that a format has no place for follow the resource's value policies
// ([engine.Policies]); by default they fail the run (invariant 6). What each
// format has no place for is written beside [misfits].
package files
