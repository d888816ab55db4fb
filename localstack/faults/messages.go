package faults

import (
	"bytes"
	"crypto/md5" //nolint:gosec // the checksum that SQS answers, no secret
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"io"
	"math/big"
	"net/http"
	"strings"
)

// entry is one message of SendMessage or SendMessageBatch; fields that are not ours
// to read stay as they are.
type entry map[string]any

func (e entry) text(name string) string {
	s, _ := e[name].(string)
	return s
}

// send passes one or several messages on, twice, late or not at all.
func (p *Proxy) send(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var request entry
	if err := json.Unmarshal(body, &request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	batch := strings.HasSuffix(r.Header.Get("X-Amz-Target"), "Batch")
	messages := []entry{request}
	if batch {
		messages = nil
		entries, _ := request["Entries"].([]any)
		for _, e := range entries {
			if m, ok := e.(map[string]any); ok {
				messages = append(messages, m)
			}
		}
	}
	duplicate, shuffle, lost := p.plan(request.text("QueueUrl"), len(messages))
	if lost {
		answerLost(w, messages, batch)
		return
	}
	fifo := strings.HasSuffix(request.text("QueueUrl"), ".fifo")
	if shuffle > 0 && !fifo {
		for _, m := range messages {
			m["DelaySeconds"] = random(shuffle + 1)
		}
	}
	if duplicate {
		if !p.again(r, request, messages, fifo) {
			http.Error(w, "the duplicate was not accepted", http.StatusBadGateway)
			return
		}
	}
	p.backend.ServeHTTP(w, withBody(r, request))
}

// plan says what happens to messages for a queue, and counts it.
func (p *Proxy) plan(queue string, n int) (duplicate bool, shuffle int, lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.Messages += n
	if !strings.Contains(queue, p.faults.Only) {
		return false, 0, false
	}
	if p.faults.Lose > 0 {
		p.faults.Lose--
		p.counts.Lost += n
		return false, 0, true
	}
	if p.faults.Duplicate {
		p.counts.Duplicated += n
	}
	return p.faults.Duplicate, p.faults.Shuffle, false
}

// again sends the messages ahead of themselves. A FIFO queue would drop them: they
// get other deduplication ids, as messages have that are repeated after the queue's
// five minutes.
func (p *Proxy) again(r *http.Request, request entry, messages []entry, fifo bool) bool {
	original := make([]any, len(messages))
	if fifo {
		for i, m := range messages {
			original[i] = m["MessageDeduplicationId"]
			m["MessageDeduplicationId"] = m.text("MessageDeduplicationId") + "-again"
		}
		defer func() {
			for i, m := range messages {
				m["MessageDeduplicationId"] = original[i]
			}
		}()
	}
	sent := &recorder{header: http.Header{}}
	p.backend.ServeHTTP(sent, withBody(r, request))
	return sent.status == 0 || sent.status == http.StatusOK
}

// recorder takes an answer that nobody reads.
type recorder struct {
	header http.Header
	status int
}

// Header implements http.ResponseWriter.
func (r *recorder) Header() http.Header { return r.header }

// Write implements http.ResponseWriter.
func (r *recorder) Write(b []byte) (int, error) { return len(b), nil }

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) { r.status = status }

func withBody(r *http.Request, request entry) *http.Request {
	body, _ := json.Marshal(request) //nolint:errchkjson // it was read from JSON
	copied := r.Clone(r.Context())
	copied.Body = io.NopCloser(bytes.NewReader(body))
	copied.ContentLength = int64(len(body))
	return copied
}

// answerLost is SQS's answer to messages that it accepts; the SDK checks the sums.
func answerLost(w http.ResponseWriter, messages []entry, batch bool) {
	results := make([]map[string]string, 0, len(messages))
	for _, m := range messages {
		sum := md5.Sum([]byte(m.text("MessageBody"))) //nolint:gosec // see the import
		results = append(results, map[string]string{
			"Id": m.text("Id"), "MessageId": strings.ToLower(rand.Text()), "MD5OfMessageBody": hex.EncodeToString(sum[:]),
		})
	}
	var answer any = results[0]
	if batch {
		answer = map[string]any{"Successful": results}
	}
	writeJSON(w, "application/x-amz-json-1.0", answer)
}

// random is a number from 0 to below n.
func random(n int) int {
	i, err := rand.Int(rand.Reader, big.NewInt(int64(n)))
	if err != nil {
		return 0
	}
	return int(i.Int64())
}
