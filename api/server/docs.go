package server

import (
	_ "embed"
	"net/http"
)

//go:embed docs.html
var docsPage []byte

// serveDocs serves the page that shows the document; it loads nothing from
// anywhere else.
func serveDocs(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; connect-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'")
	_, _ = w.Write(docsPage)
}
