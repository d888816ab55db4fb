package stacks_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// hash at the end of a logical id.
var hash = regexp.MustCompile(`[0-9A-F]{8}$`)

// plain renders a value of a template for people: intrinsic functions become the
// text that they stand for.
func plain(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case map[string]any:
		if len(v) == 1 {
			for name, arg := range v {
				if text, ok := intrinsic(name, arg); ok {
					return text
				}
			}
		}
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

func intrinsic(name string, arg any) (string, bool) {
	switch name {
	case "Ref":
		ref, _ := arg.(string)
		if strings.HasPrefix(ref, "AWS::") {
			return "${" + ref + "}", true
		}
		return ref, true
	case "Fn::GetAtt":
		list, _ := arg.([]any)
		return fmt.Sprintf("%s.%s", list[0], list[1]), true
	case "Fn::Join":
		list, _ := arg.([]any)
		parts, _ := list[1].([]any)
		texts := make([]string, len(parts))
		for i, p := range parts {
			texts[i] = plain(p)
		}
		return strings.Join(texts, plain(list[0])), true
	}
	return "", false
}

// resolve replaces what refers to a resource, in its stack or another, by words for
// that resource.
func (i *installation) resolve(t *template, v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for n, e := range v {
			out[n] = i.resolve(t, e)
		}
		return out
	case map[string]any:
		if ref, ok := v["Ref"].(string); ok && t.Resources[ref] != nil {
			return i.words(t, ref)
		}
		if att, ok := v["Fn::GetAtt"].([]any); ok && t.Resources[att[0].(string)] != nil {
			return i.words(t, att[0].(string))
		}
		if export, ok := v["Fn::ImportValue"].(string); ok {
			for _, other := range i.templates {
				for _, o := range other.Outputs {
					if at(o, "Export", "Name") == export {
						return i.resolve(other, at(o, "Value"))
					}
				}
			}
		}
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = i.resolve(t, e)
		}
		return out
	}
	return v
}

// words for a resource: its name, or what it is.
func (i *installation) words(t *template, id string) string {
	r := t.Resources[id]
	for _, p := range []string{"LogGroupName", "RepositoryName", "QueueName"} {
		if v := r.Properties[p]; v != nil {
			return plain(i.resolve(t, v))
		}
	}
	switch r.Type {
	case "AWS::IAM::Role":
		return "role of " + whoHas(r.Path)
	case "AWS::KMS::Key":
		return "the key"
	case "AWS::RDS::DBCluster":
		return "cluster-…"
	}
	return strings.ToLower(r.Type[strings.LastIndex(r.Type, ":")+1:])
}

// resourceOf shortens an ARN: partition, Region and account are the installation's
// own everywhere.
func (i *installation) resourceOf(t *template, v any) string {
	text := plain(i.resolve(t, v))
	for _, prefix := range []string{"arn:${AWS::Partition}:", "arn:aws:"} {
		text = strings.TrimPrefix(text, prefix)
	}
	text = strings.ReplaceAll(text, ":${AWS::Region}:${AWS::AccountId}:", ":")
	return strings.ReplaceAll(text, ":::", ":")
}
