package pgsource

import (
	"fmt"

	"github.com/tranship-io/tranship/engine"
)

// changeFacts are what decides whether changes can be read (read: cdc).
type changeFacts struct {
	level, keepSize string
	right           bool
	slots, senders  int64
}

const changeFactsSQL = `SELECT pg_catalog.current_setting('wal_level'), pg_catalog.current_setting('max_slot_wal_keep_size'),
	(SELECT r.rolreplication OR r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user),
	pg_catalog.current_setting('max_replication_slots')::int8 - (SELECT count(*) FROM pg_catalog.pg_replication_slots),
	pg_catalog.current_setting('max_wal_senders')::int8 - (SELECT count(*) FROM pg_catalog.pg_stat_replication)`

// findings warn only where the server is set up for changes; elsewhere nobody may
// want them.
func (f *changeFacts) findings() []engine.Finding {
	if f.level != "logical" {
		return []engine.Finding{{Level: "ok", Subject: "changes",
			Message: fmt.Sprintf("wal_level is %q: tables can be read in full and incrementally, their changes (read: cdc) can't", f.level),
			Hint:    "for read: cdc run ALTER SYSTEM SET wal_level = 'logical', and restart the server"}}
	}
	var found []engine.Finding
	warn := func(message, hint string) {
		found = append(found, engine.Finding{Level: "warning", Subject: "changes", Message: message, Hint: hint})
	}
	if !f.right {
		warn("the role may not use replication, so that changes (read: cdc) can't be read", "ALTER ROLE … REPLICATION (managed services: GRANT rds_replication TO the role)")
	}
	// A pipeline keeps one slot and one sender; an alignment point takes one more of
	// each for a moment.
	if f.slots < 2 {
		warn(fmt.Sprintf("%d replication slots are left; the first run of a pipeline with read: cdc takes 2", max(0, f.slots)), "raise max_replication_slots, or drop slots that nobody uses")
	}
	if f.senders < 2 {
		warn(fmt.Sprintf("%d WAL senders are left; the first run of a pipeline with read: cdc takes 2", max(0, f.senders)), "raise max_wal_senders")
	}
	if f.keepSize == "-1" {
		// P20
		warn("max_slot_wal_keep_size is -1: a slot that nobody reads can fill the server's disk", "set max_slot_wal_keep_size to what the disk can spare")
	}
	if found == nil {
		found = []engine.Finding{{Level: "ok", Subject: "changes", Message: fmt.Sprintf("changes (read: cdc) can be read; %d replication slots are left", f.slots)}}
	}
	return found
}
