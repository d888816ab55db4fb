//go:build !linux

package runner

// maxrssUnit: the BSDs and macOS report the resident set in bytes.
const maxrssUnit = 1
