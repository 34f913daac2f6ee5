package main

import (
	"fmt"
	"strings"
)

const widgetAPI = "/apis/bench.opsdk.dev/v1"
const children = "?labelSelector=app%3Dbench-child"

type metadata struct {
	Name            string
	UID             string
	Generation      int64
	ResourceVersion string
	OwnerReferences []struct {
		UID        string
		Controller bool
	}
}

type widget struct {
	Metadata metadata
	Spec     struct{ Size int64 }
	Status   struct {
		ObservedGeneration int64
		Conditions         []struct{ Type, Status string }
	}
}

type list[T any] struct {
	Metadata struct{ ResourceVersion string }
	Items    []T
}

// ready says whether the operator has seen the newest spec, which is of at least that generation.
func (w *widget) ready(generation int64) bool {
	if w.Metadata.Generation < generation || w.Status.ObservedGeneration != w.Metadata.Generation {
		return false
	}
	for _, condition := range w.Status.Conditions {
		if condition.Type == "Ready" {
			return condition.Status == "True"
		}
	}
	return false
}

func widgetsOf(namespace string) string    { return widgetAPI + "/namespaces/" + namespace + "/widgets" }
func configMapsOf(namespace string) string { return "/api/v1/namespaces/" + namespace + "/configmaps" }
func widgetName(number int) string         { return fmt.Sprintf("widget-%05d", number) }

func widgetJSON(number int) string {
	return fmt.Sprintf(`{"apiVersion":"bench.opsdk.dev/v1","kind":"Widget","metadata":{"name":%q,"labels":{"app":"bench","round":"0"}},`+
		`"spec":{"size":%d,"note":"widget number %d of many"}}`, widgetName(number), number%100, number)
}

// configMapJSON is of about two kilobytes, as stored.
func configMapJSON(number int) string {
	text := strings.Repeat("lorem=ipsum dolor;", 28)
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings-%05d","labels":{"app":"bench-fill","team":"t%d"},`+
		`"annotations":{"example.com/contact":"team@example.com"}},"data":{"one.conf":%q,"two.conf":%q,"three.conf":"%s %d"}}`,
		number, number%10, text, text, text, number)
}
