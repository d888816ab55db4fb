// Package contracts tests the adapters against AWS as an emulator has it: the
// suites of the ports that they implement, and what else they promise.
package contracts
