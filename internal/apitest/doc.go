// Package apitest proves the API as a whole, against a serving process and its
// database: every operation of the document by every role and from another
// organization, every documented error, and random requests made from the document.
package apitest
