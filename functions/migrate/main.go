// Command migrate brings the database up to date before the other functions are
// deployed. Migrations only expand: the functions of before go on with it.
package main

import (
	"context"

	"github.com/tranship-io/tranship/internal/awsadapter/parameter"
	"github.com/tranship-io/tranship/internal/compose/cloud"
	"github.com/tranship-io/tranship/internal/compose/cloud/database"
)

func main() {
	cloud.Main("migrate", func(ctx context.Context, f *cloud.Function) (cloud.Handler[struct{}, answer], error) {
		h, err := wire(ctx, f)
		if err != nil {
			return nil, err
		}
		return h.handle, nil
	})
}

func wire(ctx context.Context, f *cloud.Function) (*handler, error) {
	h := &handler{
		signing: f.Env.Need("TRANSHIP_SIGNING_PARAMETER"), firstKey: f.Env.Need("TRANSHIP_FIRST_KEY_PARAMETER"),
		organization: f.Env.Get("TRANSHIP_ORGANIZATION", "main"), log: f.Log, parameters: parameter.New(f.AWS),
	}
	// Bootstrapping holds one transaction while another makes the organization.
	db, err := database.Open(ctx, f, database.Options{Connections: 2})
	if err != nil {
		return nil, err
	}
	h.db = db.DB
	return h, nil
}
