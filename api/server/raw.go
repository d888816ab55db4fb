package server

import (
	"encoding/json"
	"net/http"
)

// raw is an answer that is JSON already.
type raw json.RawMessage

func (b raw) write(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", "application/json")
	_, err := w.Write(b)
	return err
}

// VisitGetDocumentResponse implements the generated interface.
func (b raw) VisitGetDocumentResponse(w http.ResponseWriter) error { return b.write(w) }

// VisitGetReceiptResponse implements the generated interface.
func (b raw) VisitGetReceiptResponse(w http.ResponseWriter) error { return b.write(w) }
