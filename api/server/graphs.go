package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tranship-io/tranship/api/internal/rest"
	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/pipelines"
)

// pipelineDraft reads a pipeline as requests have it: settings and service beside
// the graph.
func pipelineDraft(in *rest.PipelineInput) (pipelines.Draft, error) {
	d := pipelines.Draft{Name: in.Name, Description: in.Description}
	text, err := json.Marshal(struct {
		rest.Graph
		Settings rest.PipelineSettings `json:"settings,omitzero"`
		Service  rest.ServiceSettings  `json:"service,omitzero"`
	}{in.Graph, in.Settings, in.Service})
	if err != nil {
		return d, fmt.Errorf("read pipeline: %w", err)
	}
	var problems []control.Problem
	d.Graph, problems = pipelines.ParseGraph(text)
	if len(problems) > 0 {
		return d, &control.InvalidError{Problems: inRequest(problems)}
	}
	return d, nil
}

// inRequest puts problems where the request has them.
func inRequest(problems []control.Problem) []control.Problem {
	out := make([]control.Problem, len(problems))
	for i, p := range problems {
		for _, part := range []string{"nodes", "edges", "defaults"} {
			if strings.HasPrefix(p.Path, part) {
				p.Path = "graph." + p.Path
			}
		}
		out[i] = p
	}
	return out
}

// requestPaths is [inRequest] for the problems of an error.
func requestPaths(err error) error {
	var invalid *control.InvalidError
	if errors.As(err, &invalid) {
		return &control.InvalidError{Problems: inRequest(invalid.Problems)}
	}
	return err
}

// graphParts takes a graph apart as answers have it.
func graphParts(g pipelines.Graph) (out rest.Graph, settings rest.PipelineSettings, service rest.ServiceSettings, err error) {
	for _, part := range []struct{ from, into any }{{g, &out}, {g.Settings, &settings}, {g.Service, &service}} {
		text, err := json.Marshal(part.from)
		if err == nil {
			err = json.Unmarshal(text, part.into)
		}
		if err != nil {
			return out, settings, service, fmt.Errorf("write graph: %w", err)
		}
	}
	return out, settings, service, nil
}

func routesOf(routes []pipelines.Route) []rest.Route {
	return each(routes, func(r pipelines.Route) rest.Route {
		return rest.Route{Key: r.Key, From: r.From, To: r.To, Name: r.Name, Hash: r.Hash}
	})
}

func pipelineOf(p pipelines.Pipeline) (rest.Pipeline, error) {
	g, settings, service, err := graphParts(p.Current.Graph)
	return rest.Pipeline{
		Id: p.ID, Name: p.Name, Description: p.Description, Version: p.Version, CurrentVersion: p.Current.Number, Hash: p.Current.Hash,
		Paused: p.Paused, Graph: g, Settings: settings, Service: service, Routes: routesOf(p.Current.Routes), CreatedAt: p.CreatedAt, UpdatedAt: p.UpdatedAt,
	}, err
}

func versionOf(v pipelines.Version) (rest.PipelineVersion, error) {
	g, settings, service, err := graphParts(v.Graph)
	return rest.PipelineVersion{
		Number: v.Number, Hash: v.Hash, Graph: g, Settings: settings, Service: service, Routes: routesOf(v.Routes), CreatedAt: v.CreatedAt, CreatedBy: v.CreatedBy,
	}, err
}

// tryEach is [each] for translations that may fail.
func tryEach[A, B any](list []A, f func(A) (B, error)) ([]B, error) {
	out := make([]B, len(list))
	for i, x := range list {
		var err error
		if out[i], err = f(x); err != nil {
			return nil, err
		}
	}
	return out, nil
}
