package server

import (
	"context"

	"github.com/tranship-io/tranship/api/internal/rest"
	"github.com/tranship-io/tranship/control/connections"
	"github.com/tranship-io/tranship/control/secrets"
)

func connectionOf(c connections.Connection) rest.Connection {
	return rest.Connection{
		Id: c.ID, Name: c.Name, Connector: c.Connector, Role: rest.ConnectionRole(c.Role), Config: c.Config, Secrets: referencesOf(c.Secrets),
		Version: c.Version, CreatedAt: c.CreatedAt, UpdatedAt: c.UpdatedAt,
	}
}

func referencesOf(fields map[string]connections.Secret) map[string]rest.SecretReference {
	out := map[string]rest.SecretReference{}
	for path, s := range fields {
		out[path] = rest.SecretReference{Provider: rest.SecretProvider(s.Ref.Provider()), Reference: s.Ref.Name()}
	}
	return out
}

func connectionDraft(in *rest.ConnectionInput) connections.Draft {
	d := connections.Draft{Name: in.Name, Role: connections.Role(in.Role), Connector: in.Connector, Config: in.Config, Secrets: map[string]secrets.Ref{}}
	for path, s := range in.Secrets {
		d.Secrets[path] = secrets.Ref(string(s.Provider) + ":" + s.Reference)
	}
	return d
}

// ListConnections lists connections.
func (o *operations) ListConnections(ctx context.Context, r rest.ListConnectionsRequestObject) (rest.ListConnectionsResponseObject, error) {
	l, err := o.Connections.List(ctx, actorOf(ctx), connections.Filter{Name: r.Params.Name, Connector: r.Params.Connector}, page(r.Params.Limit, r.Params.After))
	if err != nil {
		return nil, err
	}
	return rest.ListConnections200JSONResponse{Items: each(l.Items, connectionOf), Next: next(l.Next)}, nil
}

// CreateConnection makes a connection.
func (o *operations) CreateConnection(ctx context.Context, r rest.CreateConnectionRequestObject) (rest.CreateConnectionResponseObject, error) {
	c, err := o.Connections.Create(ctx, actorOf(ctx), connectionDraft(r.Body))
	if err != nil {
		return nil, err
	}
	return rest.CreateConnection201JSONResponse(connectionOf(c)), nil
}

// GetConnection answers with a connection.
func (o *operations) GetConnection(ctx context.Context, r rest.GetConnectionRequestObject) (rest.GetConnectionResponseObject, error) {
	c, err := o.Connections.Get(ctx, actorOf(ctx), r.Id.String())
	if err != nil {
		return nil, err
	}
	return rest.GetConnection200JSONResponse(connectionOf(c)), nil
}

// UpdateConnection replaces a connection.
func (o *operations) UpdateConnection(ctx context.Context, r rest.UpdateConnectionRequestObject) (rest.UpdateConnectionResponseObject, error) {
	c, err := o.Connections.Update(ctx, actorOf(ctx), r.Id.String(), ifMatch(r.Params.IfMatch), connectionDraft(r.Body))
	if err != nil {
		return nil, err
	}
	return rest.UpdateConnection200JSONResponse(connectionOf(c)), nil
}

// DeleteConnection ends a connection.
func (o *operations) DeleteConnection(ctx context.Context, r rest.DeleteConnectionRequestObject) (rest.DeleteConnectionResponseObject, error) {
	if err := o.Connections.Delete(ctx, actorOf(ctx), r.Id.String(), ifMatch(r.Params.IfMatch)); err != nil {
		return nil, err
	}
	return rest.DeleteConnection204Response{}, nil
}

// ListConnectionVersions lists what a connection was.
func (o *operations) ListConnectionVersions(ctx context.Context, r rest.ListConnectionVersionsRequestObject) (rest.ListConnectionVersionsResponseObject, error) {
	l, err := o.Connections.Versions(ctx, actorOf(ctx), r.Id.String(), page(r.Params.Limit, r.Params.After))
	if err != nil {
		return nil, err
	}
	return rest.ListConnectionVersions200JSONResponse{Items: each(l.Items, func(v connections.Version) rest.ConnectionVersion {
		return rest.ConnectionVersion{Version: v.Version, Config: v.Config, Secrets: referencesOf(v.Secrets), CreatedAt: v.CreatedAt, CreatedBy: v.CreatedBy}
	}), Next: next(l.Next)}, nil
}
