// Package access decides who a caller is: members who sign in through OIDC, and
// service accounts with API keys. What an actor may do then stands in one table of
// package control.
//
// A key is a bearer text that proves itself: a MAC over organization, account,
// key, role, scopes and expiry, so that an authorizer can check it without the
// database. That it is not revoked, and that its account still has the role, is
// checked by the first statement of each transaction of the request
// ([control.WithCaller]). Only a hash of the text is stored.
package access
