// Package cloud is what the functions on AWS have in common: their environment,
// logs, metrics, batches of messages, and how they begin. The parts that only some
// functions need (the database, secrets, the control plane) are packages below it,
// so that no function links what it does not use.
//
// An invocation is all the life there is: between two of them a process is frozen
// or ended, so nothing may go on behind a handler's answer.
package cloud
