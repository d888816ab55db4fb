package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/contrib/instrumentation/runtime"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/tranship-io/tranship/control/dispatch"
	"github.com/tranship-io/tranship/internal/compose/worker"
)

// telemetry is this process's traces and metrics. Metrics are there for
// Prometheus always; traces and metrics are sent by OTLP if the environment names
// an endpoint (OTEL_EXPORTER_OTLP_ENDPOINT and its relatives). No label holds a
// name of a user's: an installation with many pipelines has as few series as one
// with few.
type telemetry struct {
	traces  *sdktrace.TracerProvider
	metrics *sdkmetric.MeterProvider
	handler http.Handler

	tracer   trace.Tracer
	attempts metric.Int64Counter
	took     metric.Float64Histogram
	sweeps   metric.Int64Counter
}

const scope = "github.com/tranship-io/tranship"

// telemetryTime bounds how long a stop waits for the last traces and metrics to go.
const telemetryTime = 3 * time.Second

func newTelemetry(ctx context.Context, version string, live func() int64) (*telemetry, error) {
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(), resource.WithProcessPID(),
		resource.WithAttributes(attribute.String("service.name", "tranship"), attribute.String("service.version", version)),
		resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("describe this process: %w", err)
	}
	t := &telemetry{}
	var tracing []sdktrace.TracerProviderOption
	if exported("TRACES") {
		e, err := otlptracehttp.New(ctx)
		if err != nil {
			return nil, fmt.Errorf("send traces: %w", err)
		}
		tracing = append(tracing, sdktrace.WithBatcher(e))
	} else {
		tracing = append(tracing, sdktrace.WithSampler(sdktrace.NeverSample()))
	}
	t.traces = sdktrace.NewTracerProvider(append(tracing, sdktrace.WithResource(about))...)
	t.tracer = t.traces.Tracer(scope)

	registry := prometheus.NewRegistry()
	local, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	if err != nil {
		return nil, fmt.Errorf("collect metrics: %w", err)
	}
	measuring := []sdkmetric.Option{sdkmetric.WithResource(about), sdkmetric.WithReader(local)}
	if exported("METRICS") {
		e, err := otlpmetrichttp.New(ctx)
		if err != nil {
			return nil, fmt.Errorf("send metrics: %w", err)
		}
		measuring = append(measuring, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(e)))
	}
	t.metrics = sdkmetric.NewMeterProvider(measuring...)
	t.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	if err := t.instruments(live); err != nil {
		return nil, fmt.Errorf("make instruments: %w", err)
	}
	return t, nil
}

func (t *telemetry) instruments(live func() int64) error {
	m := t.metrics.Meter(scope)
	var errs []error
	var err error
	t.attempts, err = m.Int64Counter("tranship.attempts", metric.WithDescription("Attempts that ended in this process, by outcome."))
	errs = append(errs, err)
	t.took, err = m.Float64Histogram("tranship.attempt.duration", metric.WithUnit("s"), metric.WithDescription("Time that attempts took."))
	errs = append(errs, err)
	t.sweeps, err = m.Int64Counter("tranship.sweeps", metric.WithDescription("Rounds of the control loop."))
	errs = append(errs, err)
	_, err = m.Int64ObservableGauge("tranship.attempts.live", metric.WithDescription("Attempts that live in this process."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error { o.Observe(live()); return nil }))
	return errors.Join(append(errs, err, runtime.Start(runtime.WithMeterProvider(t.metrics)))...)
}

// exported tells whether the environment wants a signal sent by OTLP.
func exported(signal string) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	switch os.Getenv("OTEL_" + signal + "_EXPORTER") {
	case "otlp":
		return true
	case "none":
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
}

// watch makes a span and measurements of an attempt.
func (t *telemetry) watch(ctx context.Context, c dispatch.Command) (context.Context, func(worker.Outcome)) {
	began := time.Now()
	ctx, span := t.tracer.Start(ctx, "attempt", trace.WithAttributes(
		attribute.String("tranship.run", c.Run.String()), attribute.String("tranship.organization", c.Organization.String())))
	return ctx, func(o worker.Outcome) {
		what := attribute.String("outcome", o.What)
		span.SetAttributes(what)
		if o.Err != nil {
			span.SetStatus(codes.Error, o.Err.Error())
		}
		span.End()
		measure := metric.WithAttributes(what)
		t.attempts.Add(context.WithoutCancel(ctx), 1, measure)
		t.took.Record(context.WithoutCancel(ctx), time.Since(began).Seconds(), measure)
	}
}

// close sends what is left.
func (t *telemetry) close(ctx context.Context) error {
	return errors.Join(t.traces.Shutdown(ctx), t.metrics.Shutdown(ctx))
}
