// Package notify tells people and systems of what happens: rules choose events,
// and each pair of rule and event becomes one delivery in a ledger, in the
// transaction that found the event. Deliveries are sent to a webhook (Standard
// Webhooks), to Slack or by email, with attempts, backoff and a dead letter of
// their own, at least once, under an id that stays the same over attempts and
// replays, so that a receiver can drop what it has.
//
// Webhooks go where tenants say. So that nobody reaches the operator's network
// through them, addresses are checked at the moment of dialling, after the name
// was resolved, and redirects are not followed.
package notify
