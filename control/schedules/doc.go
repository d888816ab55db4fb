// Package schedules fires pipelines at the instants of a cron line in a time
// zone, at an interval, or once.
//
// An instant is computed here alone, never by the platform that wakes us, so
// that a local time which does not exist or exists twice means the same
// everywhere: a missing local time moves forward by the length of the gap, an
// ambiguous one fires at its first instant only. A cron line that names every
// hour follows elapsed time through both changes: each half hour stays a half
// hour.
//
// Firing has two steps, each in a transaction of its own, so that one bad
// schedule never blocks another and a crash between them loses nothing. First
// what is due becomes rows (occurrences, unique by schedule and instant) while
// the schedule moves on to its next instant. Then each occurrence starts its
// runs under an idempotency key made of the same two things, and is concluded:
// fired, skipped or failed, with the reason. An occurrence whose pipeline is
// busy is skipped, queued or started as far as it goes, as the schedule's
// overlap policy says; a skip is recorded and alerted, never silent.
//
// A schedule that cannot be used (its zone is gone, its pipeline is deleted) is
// parked with the reason and an alert. It stays parked until somebody changes or
// resumes it.
package schedules
