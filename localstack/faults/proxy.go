// Package faults is a proxy in front of a service of the emulator that fails as the
// service does on bad days: errors for a while, messages that come twice, late or
// never. Functions find it through AWS_ENDPOINT_URL_SQS and AWS_ENDPOINT_URL_S3.
package faults

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
)

// Faults are what goes wrong. The zero value is a good day.
type Faults struct {
	// Fail answers 500 to every request.
	Fail bool `json:"fail"`
	// FailEvery answers 500 to every n-th request; 0 to none.
	FailEvery int `json:"fail_every"`
	// Duplicate sends every message twice.
	Duplicate bool `json:"duplicate"`
	// Shuffle delays messages to standard queues by 0 to that many seconds, so that
	// they come in another order.
	Shuffle int `json:"shuffle"`
	// Lose is how many of the next messages are accepted and lost.
	Lose int `json:"lose"`
	// Only is a part of the queue's URL that the three above are about; empty means
	// every queue.
	Only string `json:"only"`
}

// Counts say what the proxy has seen and done.
type Counts struct {
	Requests   int `json:"requests"`
	Bytes      int `json:"bytes"` // of request bodies
	Failed     int `json:"failed"`
	Messages   int `json:"messages"` // of SendMessage and SendMessageBatch
	Duplicated int `json:"duplicated"`
	Lost       int `json:"lost"`
}

// Proxy passes requests on to an endpoint.
type Proxy struct {
	backend *httputil.ReverseProxy

	mu     sync.Mutex
	faults Faults
	counts Counts
}

// New makes a proxy for an endpoint such as http://127.0.0.1:4566.
func New(endpoint string, log *slog.Logger) (*Proxy, error) {
	target, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	return &Proxy{backend: &httputil.ReverseProxy{
		Rewrite:  func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}, nil
}

// Set replaces the faults.
func (p *Proxy) Set(f Faults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = f
}

// Counts returns what was seen so far.
func (p *Proxy) Counts() Counts {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// ServeHTTP passes a request on or makes it fail. PUT /_rig/faults takes a Faults
// document, GET /_rig/counts gives the Counts.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/_rig/faults":
		p.control(w, r)
		return
	case "/_rig/counts":
		writeJSON(w, "application/json", p.Counts())
		return
	}
	if p.fails(r) {
		http.Error(w, `{"__type":"InternalFailure","message":"the rig makes this request fail"}`, http.StatusInternalServerError)
		return
	}
	if action := r.Header.Get("X-Amz-Target"); strings.HasPrefix(action, "AmazonSQS.SendMessage") {
		p.send(w, r)
		return
	}
	p.backend.ServeHTTP(w, r)
}

func (p *Proxy) control(w http.ResponseWriter, r *http.Request) {
	var f Faults
	if r.Method != http.MethodPut {
		http.Error(w, "PUT a document of faults", http.StatusMethodNotAllowed)
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&f); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.Set(f)
	w.WriteHeader(http.StatusNoContent)
}

// fails counts a request and says whether it must fail.
func (p *Proxy) fails(r *http.Request) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.Requests++
	p.counts.Bytes += int(max(r.ContentLength, 0))
	if !p.faults.Fail && (p.faults.FailEvery == 0 || p.counts.Requests%p.faults.FailEvery != 0) {
		return false
	}
	p.counts.Failed++
	_, _ = io.Copy(io.Discard, r.Body) // else the client sees a broken pipe and not our answer
	return true
}

func writeJSON(w http.ResponseWriter, contentType string, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write(body) // a client that has gone needs no answer
}
