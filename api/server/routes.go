package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tranship-io/tranship/api"
	"github.com/tranship-io/tranship/control"
)

// route is an operation of the document, as far as the server checks it.
type route struct {
	id, method, path, tag string
	permission            control.Permission
	public                bool
	parameters            []*parameter
	// body is the schema of the body; nil: there is none.
	body         *jsonschema.Schema
	bodyRequired bool
	// needsMatch is true where a change must say which version it means.
	needsMatch bool
}

type parameter struct {
	Name     string          `json:"name"`
	In       string          `json:"in"`
	Required bool            `json:"required"`
	Raw      json.RawMessage `json:"schema"`
	list     bool
	kind     string
	schema   *jsonschema.Schema
}

// routes are the document's operations by the pattern of [http.ServeMux].
type routes struct{ byPattern map[string]*route }

// place is the name under which the document is known to the schema compiler.
const place = "urn:tranship:openapi"

func loadRoutes() (*routes, error) {
	text, err := api.Document()
	if err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read the API's document: %w", err)
	}
	allowNull(doc)
	l := &loader{compiler: jsonschema.NewCompiler()}
	l.compiler.AssertFormat()
	if err := l.compiler.AddResource(place, doc); err != nil {
		return nil, fmt.Errorf("read the API's document: %w", err)
	}
	if err := json.Unmarshal(text, &l.doc); err != nil {
		return nil, fmt.Errorf("read the API's document: %w", err)
	}
	out := &routes{byPattern: map[string]*route{}}
	for path, item := range l.doc.Paths {
		for method, raw := range item {
			if method == "parameters" {
				continue
			}
			r, err := l.route(path, method, raw, item["parameters"])
			if err != nil {
				return nil, fmt.Errorf("operation %s %s of the API's document: %w", method, path, err)
			}
			out.byPattern[r.method+" "+path] = r
		}
	}
	return out, nil
}

// allowNull turns nullable, which OpenAPI 3.0 alone has, into a type of JSON Schema.
func allowNull(v any) {
	switch x := v.(type) {
	case map[string]any:
		if name, ok := x["type"].(string); ok && x["nullable"] == true {
			x["type"] = []any{name, "null"}
		}
		for _, inner := range x {
			allowNull(inner)
		}
	case []any:
		for _, inner := range x {
			allowNull(inner)
		}
	}
}

// loader reads the document.
type loader struct {
	compiler *jsonschema.Compiler
	doc      struct {
		Paths      map[string]map[string]json.RawMessage `json:"paths"`
		Components struct {
			Parameters map[string]json.RawMessage `json:"parameters"`
		} `json:"components"`
	}
}

func (l *loader) route(path, method string, raw, shared json.RawMessage) (*route, error) {
	var op struct {
		ID          string            `json:"operationId"`
		Tags        []string          `json:"tags"`
		Permission  string            `json:"x-permission"`
		Security    *[]any            `json:"security"`
		Parameters  []json.RawMessage `json:"parameters"`
		RequestBody *struct {
			Required bool                       `json:"required"`
			Content  map[string]json.RawMessage `json:"content"`
		} `json:"requestBody"`
		Responses map[string]json.RawMessage `json:"responses"`
	}
	if err := json.Unmarshal(raw, &op); err != nil {
		return nil, err
	}
	r := &route{id: op.ID, method: strings.ToUpper(method), path: path, tag: op.Tags[0], permission: control.Permission(op.Permission)}
	r.public = op.Security != nil && len(*op.Security) == 0
	_, r.needsMatch = op.Responses["428"]
	var common []json.RawMessage
	if len(shared) > 0 {
		if err := json.Unmarshal(shared, &common); err != nil {
			return nil, err
		}
	}
	here := place + "#/paths/" + pointer(path) + "/"
	for i, raw := range common {
		if err := l.parameter(r, raw, fmt.Sprintf("%sparameters/%d", here, i)); err != nil {
			return nil, err
		}
	}
	for i, raw := range op.Parameters {
		if err := l.parameter(r, raw, fmt.Sprintf("%s%s/parameters/%d", here, method, i)); err != nil {
			return nil, err
		}
	}
	if op.RequestBody != nil {
		var err error
		r.bodyRequired = op.RequestBody.Required
		if r.body, err = l.compiler.Compile(here + method + "/requestBody/content/application~1json/schema"); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (l *loader) parameter(r *route, raw json.RawMessage, at string) error {
	var ref struct {
		Ref string `json:"$ref"`
	}
	if err := json.Unmarshal(raw, &ref); err != nil {
		return err
	}
	if ref.Ref != "" {
		name := strings.TrimPrefix(ref.Ref, "#/components/parameters/")
		raw, at = l.doc.Components.Parameters[name], place+ref.Ref
	}
	p := &parameter{}
	if err := json.Unmarshal(raw, p); err != nil {
		return err
	}
	var err error
	if p.schema, err = l.compiler.Compile(at + "/schema"); err != nil {
		return err
	}
	item := p.schema
	for item.Ref != nil {
		item = item.Ref
	}
	if item.Types != nil && slices.Contains(item.Types.ToStrings(), "array") {
		p.list = true
		if sub := item.Items2020; sub != nil {
			item = sub
		}
		for item.Ref != nil {
			item = item.Ref
		}
	}
	if item.Types != nil {
		p.kind = item.Types.ToStrings()[0]
	}
	r.parameters = append(r.parameters, p)
	return nil
}

// pointer escapes a key for a JSON pointer within a URL's fragment.
func pointer(key string) string {
	return url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(key))
}

// check returns everything that is wrong with the parameters of a request.
func (r *route) check(req *http.Request) []control.Problem {
	var out []control.Problem
	query, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		return []control.Problem{{Message: "the query cannot be read"}}
	}
	var known []string
	for _, p := range r.parameters {
		var values []string
		switch p.In {
		case "query":
			known = append(known, p.Name)
			values = query[p.Name]
		case "path":
			values = []string{req.PathValue(p.Name)}
		case "header":
			values = req.Header.Values(p.Name)
		}
		out = append(out, p.check(values)...)
	}
	for _, name := range sortedKeys(query) {
		if !slices.Contains(known, name) {
			out = append(out, control.Problem{Path: "query", Message: "there is no parameter " + strconv.Quote(printable(name)), Hint: "known here: " + strings.Join(known, ", ")})
		}
	}
	return out
}

func (p *parameter) check(values []string) []control.Problem {
	problem := func(message string) []control.Problem {
		return []control.Problem{{Path: p.In + "." + p.Name, Message: message}}
	}
	switch {
	case len(values) == 0 && p.Required:
		return problem("it is missing")
	case len(values) == 0:
		return nil
	case len(values) > 1 && !p.list:
		return problem("it is given more than once")
	}
	items := make([]any, len(values))
	for i, v := range values {
		if !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
			return problem("it is not text in UTF-8")
		}
		items[i] = p.value(v)
	}
	var value any = items
	if !p.list {
		value = items[0]
	}
	if err := p.schema.Validate(value); err != nil {
		out := problemsOf(err)
		for i := range out {
			out[i].Path = p.In + "." + p.Name + out[i].Path
		}
		return out
	}
	return nil
}

// value is a parameter's text as its schema's type, or the text if it is none.
func (p *parameter) value(text string) any {
	switch p.kind {
	case "integer", "number":
		if _, err := strconv.ParseInt(text, 10, 64); err == nil {
			return json.Number(text)
		}
	case "boolean":
		if text == "true" || text == "false" {
			return text == "true"
		}
	}
	return text
}

func sortedKeys[T any](m map[string]T) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// printable bounds what of a request an answer repeats.
func printable(s string) string {
	if len(s) > 64 {
		s = s[:64] + "…"
	}
	return strings.ToValidUTF8(s, "�")
}
