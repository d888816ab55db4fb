package server

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/tranship-io/tranship/api/internal/rest"
	"github.com/tranship-io/tranship/control"
	"github.com/tranship-io/tranship/control/runs"
	"github.com/tranship-io/tranship/engine"
	"github.com/tranship-io/tranship/events"
)

func runFrom(r runs.Run) rest.Run {
	return rest.Run{
		Id: r.ID, Pipeline: r.Title, PipelineId: r.Pipeline, PipelineVersion: r.Number, Version: r.Hash, Route: r.Route,
		State: rest.RunState(r.State), Resumable: r.Resumable, Desired: string(r.Desired),
		Error: r.Error, ErrorClass: string(r.Class), Hint: r.Hint,
		Trigger: string(r.Trigger.Kind), ScheduleId: r.Trigger.Schedule, Occurrence: r.Trigger.Occurrence,
		Options: rest.RunOptions{FullRefresh: r.Options.FullRefresh, Only: r.Options.Only},
		Backfill: each(r.Options.Backfill, func(b runs.Backfill) rest.BackfillRange {
			return rest.BackfillRange{Resource: b.Resource, From: b.From, To: b.To}
		}),
		Attempts: r.Attempts, Interruptions: r.Interruptions, LastFact: r.LastFact,
		RowsRead: r.Totals.Read, RowsWritten: r.Totals.Written, Bytes: r.Totals.Bytes,
		CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, EndedAt: r.EndedAt,
	}
}

func runList(l control.List[runs.Run]) rest.RunList {
	return rest.RunList{Items: each(l.Items, runFrom), Next: next(l.Next)}
}

// ListRuns lists runs.
func (o *operations) ListRuns(ctx context.Context, r rest.ListRunsRequestObject) (rest.ListRunsResponseObject, error) {
	p := r.Params
	f := runs.Filter{Pipeline: p.Pipeline, From: p.CreatedFrom, Before: p.CreatedBefore,
		States: each(p.State, func(s rest.RunState) engine.RunState { return engine.RunState(s) })}
	l, err := o.Runs.List(ctx, actorOf(ctx), f, page(p.Limit, p.After))
	if err != nil {
		return nil, err
	}
	return rest.ListRuns200JSONResponse(runList(l)), nil
}

// StartRun starts a pipeline's runs.
func (o *operations) StartRun(ctx context.Context, r rest.StartRunRequestObject) (rest.StartRunResponseObject, error) {
	started, err := o.Runs.Start(ctx, actorOf(ctx), runs.StartRequest{
		Pipeline: r.Body.Pipeline, Restart: r.Body.Restart,
		Options: runs.Options{FullRefresh: r.Body.Options.FullRefresh, Only: r.Body.Options.Only,
			Backfill: each(r.Body.Backfill, func(b rest.BackfillRange) runs.Backfill {
				return runs.Backfill{Resource: b.Resource, CursorRange: engine.CursorRange{From: b.From, To: b.To}}
			})},
	})
	if err != nil {
		return nil, err
	}
	return rest.StartRun202JSONResponse(runList(control.List[runs.Run]{Items: started.Runs})), nil
}

// GetRun answers with a run.
func (o *operations) GetRun(ctx context.Context, r rest.GetRunRequestObject) (rest.GetRunResponseObject, error) {
	x, err := o.Runs.Get(ctx, actorOf(ctx), r.Id)
	if err != nil {
		return nil, err
	}
	return rest.GetRun200JSONResponse(runFrom(x)), nil
}

// steer does one of the things that an operator does to a run.
func (o *operations) steer(ctx context.Context, id uuid.UUID, do func(*runs.Service, context.Context, control.Actor, uuid.UUID) (runs.Run, error)) (rest.Run, error) {
	x, err := do(o.Runs, ctx, actorOf(ctx), id)
	return runFrom(x), err
}

// PauseRun pauses a run.
func (o *operations) PauseRun(ctx context.Context, r rest.PauseRunRequestObject) (rest.PauseRunResponseObject, error) {
	x, err := o.steer(ctx, r.Id, (*runs.Service).Pause)
	if err != nil {
		return nil, err
	}
	return rest.PauseRun202JSONResponse(x), nil
}

// ResumeRun resumes a run.
func (o *operations) ResumeRun(ctx context.Context, r rest.ResumeRunRequestObject) (rest.ResumeRunResponseObject, error) {
	x, err := o.steer(ctx, r.Id, (*runs.Service).Resume)
	if err != nil {
		return nil, err
	}
	return rest.ResumeRun202JSONResponse(x), nil
}

// CancelRun cancels a run.
func (o *operations) CancelRun(ctx context.Context, r rest.CancelRunRequestObject) (rest.CancelRunResponseObject, error) {
	x, err := o.steer(ctx, r.Id, (*runs.Service).Cancel)
	if err != nil {
		return nil, err
	}
	return rest.CancelRun202JSONResponse(x), nil
}

// RetryRun resumes a failed run or starts its successor.
func (o *operations) RetryRun(ctx context.Context, r rest.RetryRunRequestObject) (rest.RetryRunResponseObject, error) {
	x, err := o.steer(ctx, r.Id, (*runs.Service).Retry)
	if err != nil {
		return nil, err
	}
	return rest.RetryRun202JSONResponse(x), nil
}

// ListFacts lists a run's facts, waiting for the first one.
func (o *operations) ListFacts(ctx context.Context, r rest.ListFactsRequestObject) (rest.ListFactsResponseObject, error) {
	var wait time.Duration
	if r.Params.Wait != "" {
		var err error
		if wait, err = time.ParseDuration(r.Params.Wait); err != nil {
			return nil, control.Invalid("wait", "write it as 20s", "%q is no duration", r.Params.Wait)
		}
	}
	facts, over, err := o.Runs.Facts(ctx, actorOf(ctx), r.Id, r.Params.After, wait, page(r.Params.Limit, "").Size())
	if err != nil {
		return nil, err
	}
	out := rest.FactList{Items: each(facts, func(f events.Fact) rest.Fact {
		return rest.Fact{Number: f.Number, Type: string(f.Type), Version: f.Version, At: f.At, Data: f.Payload}
	})}
	if !over {
		last := r.Params.After
		if len(facts) > 0 {
			last = facts[len(facts)-1].Number
		}
		out.Next = &last
	}
	answer := rest.ListFacts200JSONResponse(out)
	if len(facts) == 0 && !over && o.factsPause > 0 {
		return restResponse{answer, seconds(o.factsPause)}, nil
	}
	return answer, nil
}

// restResponse asks the caller to rest before it asks again.
type restResponse struct {
	rest.ListFacts200JSONResponse
	seconds int
}

// VisitListFactsResponse implements [rest.ListFactsResponseObject].
func (r restResponse) VisitListFactsResponse(w http.ResponseWriter) error {
	w.Header().Set("Retry-After", strconv.Itoa(r.seconds))
	return r.ListFacts200JSONResponse.VisitListFactsResponse(w)
}

// ListRunResources lists a run's resources.
func (o *operations) ListRunResources(ctx context.Context, r rest.ListRunResourcesRequestObject) (rest.ListRunResourcesResponseObject, error) {
	l, err := o.Runs.Resources(ctx, actorOf(ctx), r.Id, page(r.Params.Limit, r.Params.After))
	if err != nil {
		return nil, err
	}
	return rest.ListRunResources200JSONResponse{Next: next(l.Next), Items: each(l.Items, func(x runs.Resource) rest.RunResource {
		return rest.RunResource{
			Resource: x.Name, Target: x.Target, Read: string(x.Read), Write: string(x.Write), State: x.State, Error: x.Error,
			RowsRead: x.Totals.Read, RowsWritten: x.Totals.Applied, RowsSuperseded: x.Totals.Superseded, RowsSkipped: x.Totals.Skipped,
			RowsSetAside: x.Totals.SetAside, Bytes: x.Totals.Bytes, Splits: x.Splits, SplitsDone: x.SplitsDone,
		}
	})}, nil
}

// GetReceipt answers with a run's receipt.
func (o *operations) GetReceipt(ctx context.Context, r rest.GetReceiptRequestObject) (rest.GetReceiptResponseObject, error) {
	receipt, err := o.Runs.Receipt(ctx, actorOf(ctx), r.Id)
	if err != nil {
		return nil, err
	}
	return receiptResponse(receipt), nil
}

// receiptResponse is a receipt as it is stored, byte by byte.
type receiptResponse json.RawMessage

// VisitGetReceiptResponse implements [rest.GetReceiptResponseObject].
func (r receiptResponse) VisitGetReceiptResponse(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_, err := w.Write(r)
	return err
}

// GetRunLogs says where the logs of a run's workers are.
func (o *operations) GetRunLogs(ctx context.Context, r rest.GetRunLogsRequestObject) (rest.GetRunLogsResponseObject, error) {
	x, err := o.Runs.Get(ctx, actorOf(ctx), r.Id)
	if err != nil {
		return nil, err
	}
	return rest.GetRunLogs200JSONResponse{Kind: "stderr", Hint: "the processes of tranship serve write their logs to standard error: look for run=" + x.ID.String()}, nil
}
