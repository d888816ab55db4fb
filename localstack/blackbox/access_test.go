package blackbox

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// newKey makes a service account with a key.
func (c *client) newKey(role string, more map[string]any) (id string, as *client) {
	c.t.Helper()
	account := c.must(http.MethodPost, "/v1/service-accounts", map[string]any{"name": name(c.t), "role": role})
	body := map[string]any{"service_account": account.text("id"), "name": name(c.t)}
	for key, value := range more {
		body[key] = value
	}
	created := c.must(http.MethodPost, "/v1/keys", body)
	item, _ := created["item"].(map[string]any)
	return document(item).text("id"), &client{t: c.t, key: created.text("key")}
}

func TestAccess(t *testing.T) {
	t.Parallel()
	boss := admin(t)
	who := boss.must(http.MethodGet, "/v1/whoami", nil)
	require.Equal(t, "admin", who.text("role"), "the first key, which migrate made, works")

	t.Run("without a key", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, http.StatusUnauthorized, (&client{t: t}).status(http.MethodGet, "/v1/runs", nil))
	})
	t.Run("keys that are none", func(t *testing.T) {
		t.Parallel()
		for _, key := range []string{"garbage", rigWorld.key[:len(rigWorld.key)-2] + "zz"} {
			code := (&client{t: t, key: key}).status(http.MethodGet, "/v1/runs", nil)
			require.Contains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, code)
		}
	})
	t.Run("an expired key", func(t *testing.T) {
		t.Parallel()
		c := admin(t)
		expires := time.Now().Add(3 * time.Second)
		_, late := c.newKey("viewer", map[string]any{"expires_at": expires.UTC().Format(time.RFC3339Nano)})
		require.Eventually(t, func() bool {
			code := late.status(http.MethodGet, "/v1/runs", nil)
			return code == http.StatusUnauthorized || code == http.StatusForbidden
		}, 90*time.Second, time.Second)
	})
	t.Run("a revoked key is refused at once", func(t *testing.T) {
		t.Parallel()
		c := admin(t)
		id, other := c.newKey("viewer", nil)
		require.Equal(t, http.StatusOK, other.status(http.MethodGet, "/v1/runs", nil), "and its policy is in the authorizer's cache now")
		c.must(http.MethodPost, "/v1/keys/"+id+"/revoke", nil)
		code := other.status(http.MethodGet, "/v1/runs", nil)
		require.Contains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, code)
	})
	t.Run("a viewer changes nothing", func(t *testing.T) {
		t.Parallel()
		_, viewer := admin(t).newKey("viewer", nil)
		require.Equal(t, http.StatusOK, viewer.status(http.MethodGet, "/v1/connections", nil))
		require.Equal(t, http.StatusForbidden, viewer.status(http.MethodPost, "/v1/runs", map[string]any{"pipeline": "none"}))
	})
	t.Run("what is not there", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, http.StatusNotFound, admin(t).status(http.MethodGet, "/v1/runs/0198d3a0-0000-7000-8000-000000000001", nil))
	})
}
