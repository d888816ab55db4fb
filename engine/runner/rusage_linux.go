package runner

// maxrssUnit: Linux reports the resident set in KiB.
const maxrssUnit = 1024
