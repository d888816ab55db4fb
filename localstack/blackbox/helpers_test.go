package blackbox

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

// invariants are counts over runs that have ended, and must be zero.
var invariants = map[string]string{
	"runs whose facts have gaps or doubles": `SELECT count(*) FROM tranship.runs r LEFT JOIN LATERAL
		(SELECT count(*) AS n, min(number) AS first, max(number) AS last FROM tranship.facts f WHERE f.organization = r.organization AND f.run = r.id) f ON true
		WHERE f.n <> r.last_fact OR f.first <> 1 OR f.last <> r.last_fact`,
	"runs that began or ended more than once": `SELECT count(*) FROM (SELECT run FROM tranship.facts WHERE type IN ('run.started', 'run.completed')
		GROUP BY run, type HAVING count(*) <> 1) x`,
}

// projected are counts that must become zero once facts have been passed on.
var projected = map[string]string{
	"runs that are not in the read model as they ended": `SELECT count(*) FROM tranship.runs r
		LEFT JOIN tranship.run_history h ON h.organization = r.organization AND h.run = r.id
		WHERE r.state IN ('completed', 'failed', 'canceled') AND h.state IS DISTINCT FROM r.state`,
}

// consistent checks the control plane's own books.
func consistent(t *testing.T) {
	t.Helper()
	db := controlDatabase(t)
	for what, sql := range invariants {
		require.Zero(t, one[int](t, db, sql), what)
	}
	for what, sql := range projected {
		require.Eventually(t, func() bool { return one[int](t, db, sql) == 0 }, 3*time.Minute, time.Second, what)
	}
}
