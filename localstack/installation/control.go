package installation

import (
	"net/http"
	"time"
)

// control is the rig's own interface for tests:
//
//	POST /schedules/GROUP/NAME/fire?at=INSTANT   invoke a schedule's target now
//	POST /database/restart                       as a failover looks
//	POST /redeploy                               deploy what has changed
//	POST /destroy                                remove the stacks
func (i *Installation) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /schedules/{group}/{name}/fire", func(w http.ResponseWriter, r *http.Request) {
		at := time.Now().Truncate(time.Second)
		if text := r.URL.Query().Get("at"); text != "" {
			var err error
			if at, err = time.Parse(time.RFC3339, text); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
		}
		answer(w, i.driver.Fire(r.Context(), r.PathValue("group"), r.PathValue("name"), at))
	})
	mux.HandleFunc("POST /database/restart", func(w http.ResponseWriter, r *http.Request) {
		answer(w, i.database.Restart(r.Context()))
	})
	mux.HandleFunc("POST /redeploy", func(w http.ResponseWriter, r *http.Request) { answer(w, i.Redeploy(r.Context())) })
	mux.HandleFunc("POST /destroy", func(w http.ResponseWriter, r *http.Request) { answer(w, i.Destroy(r.Context())) })
	return mux
}

func answer(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
