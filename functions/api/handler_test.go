package main

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/tranship-io/tranship/internal/cloudtest"
	"github.com/tranship-io/tranship/internal/compose/cloud/plane"
)

func TestMain(m *testing.M) { cloudtest.Main(m) }

// TestARequestMakesWork: a start turns the sweep on, sends the run's command and
// tells of its facts before it is answered; a key that is revoked is refused at
// once.
func TestARequestMakesWork(t *testing.T) {
	t.Parallel()
	i := cloudtest.New(t)
	f := i.Function("api")
	p, err := plane.Open(t.Context(), f, 1)
	require.NoError(t, err)
	t.Cleanup(p.DB.Close)
	_, err = wire(t.Context(), p)
	require.ErrorContains(t, err, "the function migrate makes it", "without its signing key it does not begin")
	i.SigningParameter()
	h, err := wire(t.Context(), p)
	require.NoError(t, err)
	require.NoError(t, f.Env.Err())

	var key string
	var last events.APIGatewayProxyResponse
	call := func(method, path, body string, into any) int {
		answer, err := h.handle(i.Invocation(29*time.Second), events.APIGatewayProxyRequest{HTTPMethod: method, Path: path, Body: body,
			Headers: map[string]string{"Authorization": "Bearer " + key, "Content-Type": "application/json"}})
		require.NoError(t, err)
		last = answer
		t.Log(method, path, answer.StatusCode, answer.Body)
		if into != nil {
			require.NoError(t, json.Unmarshal([]byte(answer.Body), into))
		}
		return answer.StatusCode
	}
	require.Equal(t, http.StatusServiceUnavailable, call("GET", "/v1/runs", "", nil), "the database is not migrated")
	actor, text := i.Organization()
	require.Equal(t, http.StatusUnauthorized, call("GET", "/v1/runs", "", nil))
	key = text
	i.Pipeline(actor, "shop", 10)
	require.Equal(t, http.StatusOK, call("GET", "/v1/runs", "", nil))
	require.False(t, i.Sweeping())
	var list struct {
		Items []struct {
			ID string `json:"id"`
		} `json:"items"`
	}
	require.Equal(t, http.StatusAccepted, call("POST", "/v1/runs", `{"pipeline":"shop"}`, &list))
	require.True(t, i.Sweeping())
	require.Len(t, i.Receive("TRANSHIP_ATTEMPTS_QUEUE").Records, 1)
	require.Len(t, i.Receive("TRANSHIP_FACTS_QUEUE").Records, 1)
	require.Equal(t, http.StatusOK, call("GET", "/v1/runs/"+list.Items[0].ID+"/facts", "", nil))
	require.Empty(t, last.MultiValueHeaders["Retry-After"])
	began := time.Now()
	waits := events.APIGatewayProxyRequest{HTTPMethod: "GET", Path: "/v1/runs/" + list.Items[0].ID + "/facts", QueryStringParameters: map[string]string{"after": "1", "wait": "20s"},
		Headers: map[string]string{"Authorization": "Bearer " + key}}
	last, err = h.handle(i.Invocation(29*time.Second), waits)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, last.StatusCode)
	require.Equal(t, []string{"2"}, last.MultiValueHeaders["Retry-After"], "who waited in vain rests, since waiting is billed")
	require.GreaterOrEqual(t, time.Since(began), 5*time.Second)

	var keys struct {
		Items []struct {
			ID string `json:"id"`
		} `json:"items"`
	}
	require.Equal(t, http.StatusOK, call("GET", "/v1/keys", "", &keys))
	require.NotEmpty(t, keys.Items)
	require.Less(t, call("POST", "/v1/keys/"+keys.Items[0].ID+"/revoke", "", nil), 300)
	require.Equal(t, http.StatusUnauthorized, call("GET", "/v1/runs", "", nil))
}
