package cloud

import (
	"encoding/json"
	"io"
	"sync"
	"time"
)

// namespace is that of our metrics in CloudWatch.
const namespace = "Tranship"

// Unit is a metric's unit, as CloudWatch names it.
type Unit string

// The units.
const (
	Count        Unit = "Count"
	Milliseconds Unit = "Milliseconds"
	Bytes        Unit = "Bytes"
)

// Value is one measurement.
type Value struct {
	// Name is the metric's, in camel case.
	Name   string
	Unit   Unit
	Amount float64
}

// Metrics writes measurements as log lines in CloudWatch's embedded metric format,
// which cost no call. Their only dimensions are the installation and the function:
// an organization or pipeline as a dimension would be a metric, and a price, each.
type Metrics struct {
	w            io.Writer
	installation string
	function     string
	now          func() time.Time

	mu sync.Mutex
}

// Emit writes measurements of now. A line that cannot be written is lost.
func (m *Metrics) Emit(values ...Value) {
	type metric struct {
		Name string
		Unit Unit
	}
	type directive struct {
		Namespace  string
		Dimensions [][]string
		Metrics    []metric
	}
	d := directive{Namespace: namespace, Dimensions: [][]string{{"installation", "function"}}}
	line := map[string]any{"installation": m.installation, "function": m.function}
	for _, v := range values {
		d.Metrics = append(d.Metrics, metric{v.Name, v.Unit})
		line[v.Name] = v.Amount
	}
	line["_aws"] = map[string]any{"Timestamp": m.now().UnixMilli(), "CloudWatchMetrics": []directive{d}}
	text, err := json.Marshal(line)
	if err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, _ = m.w.Write(append(text, '\n'))
}
