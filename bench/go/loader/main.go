// Command loader fills the API server for the benchmarks, changes what is there, and watches it converge.
//
// Each call is one step and prints what it found as one line of JSON; `converge` prints a line before it when it watches.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

type found map[string]any

type options struct {
	*server
	namespace string
	count     int
	changes   int
	final     string
	file      string
	patience  time.Duration
}

// bench-child ConfigMaps and Widgets are written sixteen at a time: more makes the API server no faster.
const atOnce = 16

var steps = map[string]func(options) (found, error){
	"install":    install,
	"configmaps": configMaps,
	"widgets":    widgets,
	"renew":      renew,
	"converge":   converge,
	"respec":     respec,
	"verify":     verify,
	"storm":      storm,
	"requests":   requests,
}

func main() {
	if len(os.Args) < 2 || steps[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: loader STEP [FLAGS]; see main.go for the steps")
		os.Exit(2)
	}
	var given options
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	flags.StringVar(&given.namespace, "namespace", "", "where")
	flags.IntVar(&given.count, "count", 0, "objects")
	flags.IntVar(&given.changes, "changes", 0, "changes of a storm")
	flags.StringVar(&given.final, "final", "", "label value of each object's last change")
	flags.StringVar(&given.file, "file", "", "manifest to install, as JSON")
	flags.DurationVar(&given.patience, "patience", 3*time.Minute, "longest wait")
	kubeconfig := flags.String("kubeconfig", os.Getenv("KUBECONFIG"), "the API server")
	_ = flags.Parse(os.Args[2:])
	result, err := run(given, *kubeconfig)
	if err != nil {
		fmt.Fprintln(os.Stderr, "loader:", err)
		os.Exit(1)
	}
	tell(result)
}

func run(given options, kubeconfig string) (found, error) {
	server, err := connect(kubeconfig)
	if err != nil {
		return nil, err
	}
	given.server = server
	return steps[os.Args[1]](given)
}

func tell(what found) {
	text, _ := json.Marshal(what)
	fmt.Println(string(text))
}

// install applies a CustomResourceDefinition and waits until its kind is served.
func install(o options) (found, error) {
	text, err := os.ReadFile(o.file)
	if err != nil {
		return nil, err
	}
	path := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.bench.opsdk.dev"
	if _, err := o.send("PATCH", path+manager+"&force=true", serverSideApply, string(text)); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(o.patience); ; time.Sleep(100 * time.Millisecond) {
		_, err := o.send("GET", widgetAPI+"/widgets", "", "")
		if err == nil || time.Now().After(deadline) {
			return found{}, err
		}
	}
}

func (o options) ensureNamespace() error {
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, o.namespace)
	_, err := o.send("PATCH", "/api/v1/namespaces/"+o.namespace+manager+"&force=true", serverSideApply, body)
	return err
}

// fill applies so many objects server-side, so that they have managedFields.
func (o options) fill(path string, name func(int) string, body func(int) string) (found, error) {
	if err := o.ensureNamespace(); err != nil {
		return nil, err
	}
	lasted, err := spread(o.count, atOnce, func(number int) error {
		_, err := o.send("PATCH", path+"/"+name(number)+manager+"&force=true", serverSideApply, body(number))
		return err
	})
	return found{"seconds": lasted.Seconds()}, err
}

func configMaps(o options) (found, error) {
	name := func(number int) string { return fmt.Sprintf("settings-%05d", number) }
	return o.fill(configMapsOf(o.namespace), name, configMapJSON)
}

func widgets(o options) (found, error) {
	return o.fill(widgetsOf(o.namespace), widgetName, widgetJSON)
}

// renew leaves so many new Widgets and no children.
func renew(o options) (found, error) {
	if err := o.ensureNamespace(); err != nil {
		return nil, err
	}
	for _, path := range []string{widgetsOf(o.namespace), configMapsOf(o.namespace) + children} {
		for left := true; left; {
			var there list[struct{}]
			if _, err := o.send("DELETE", path, "", ""); err != nil {
				return nil, err
			}
			if err := o.read(path, &there); err != nil {
				return nil, err
			}
			left = len(there.Items) > 0
		}
	}
	lasted, err := spread(o.count, atOnce, func(number int) error {
		_, err := o.send("POST", widgetsOf(o.namespace)+manager, plainJSON, widgetJSON(number))
		return err
	})
	return found{"seconds": lasted.Seconds()}, err
}

// follow watches until all Widgets are ready at that generation or a later one. begun is called when it watches.
func (o options) follow(generation int64, begun func()) error {
	var there list[widget]
	if err := o.read(widgetsOf(o.namespace), &there); err != nil {
		return err
	}
	ready := map[string]bool{}
	for _, one := range there.Items {
		if one.ready(generation) {
			ready[one.Metadata.Name] = true
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.patience)
	defer cancel()
	path := o.url + widgetsOf(o.namespace) + "?watch=1&resourceVersion=" + there.Metadata.ResourceVersion
	request, err := http.NewRequestWithContext(ctx, "GET", path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", agent)
	answer, err := o.http.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	begun()
	lines := bufio.NewReaderSize(answer.Body, 1<<16)
	for len(ready) < o.count {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("%d of %d are ready: %w", len(ready), o.count, err)
		}
		var event struct{ Object widget }
		if err := json.Unmarshal(line, &event); err != nil {
			return err
		}
		if event.Object.ready(generation) {
			ready[event.Object.Metadata.Name] = true
		}
	}
	return nil
}

// converge waits until all Widgets are ready.
func converge(o options) (found, error) {
	err := o.follow(0, func() { tell(found{"watching": true}) })
	return found{"at": now()}, err
}

// respec changes the spec of all Widgets and waits until all are ready again.
func respec(o options) (found, error) {
	var there list[widget]
	if err := o.read(widgetsOf(o.namespace), &there); err != nil {
		return nil, err
	}
	var newest int64
	for _, one := range there.Items {
		newest = max(newest, one.Metadata.Generation)
	}
	began := 0.0
	wrote := make(chan error, 1)
	err := o.follow(newest+1, func() {
		began = now()
		go func() {
			_, err := spread(o.count, atOnce, func(number int) error {
				change := fmt.Sprintf(`{"spec":{"size":%d}}`, 1000*newest+int64(number)+1000)
				_, err := o.send("PATCH", widgetsOf(o.namespace)+"/"+widgetName(number)+manager, mergePatch, change)
				return err
			})
			wrote <- err
		}()
	})
	return found{"seconds": now() - began}, errors.Join(err, <-wrote)
}

// verify counts the Widgets whose child is theirs and as their spec says.
func verify(o options) (found, error) {
	var owners list[widget]
	var owned list[struct {
		Metadata metadata
		Data     map[string]string
	}]
	err := errors.Join(o.read(widgetsOf(o.namespace), &owners), o.read(configMapsOf(o.namespace)+children, &owned))
	if err != nil {
		return nil, err
	}
	sizes := map[string]string{}
	for _, child := range owned.Items {
		for _, owner := range child.Metadata.OwnerReferences {
			if owner.Controller {
				sizes[owner.UID] = child.Data["size"]
			}
		}
	}
	right := 0
	for _, one := range owners.Items {
		if sizes[one.Metadata.UID] == strconv.FormatInt(one.Spec.Size, 10) {
			right++
		}
	}
	return found{"right": right, "children": len(owned.Items)}, nil
}

// storm changes a label of each Widget in turn.
func storm(o options) (found, error) {
	lasted, err := spread(o.changes, atOnce, func(number int) error {
		value := "r" + strconv.Itoa(number)
		if number >= o.changes-o.count {
			value = o.final
		}
		change := fmt.Sprintf(`{"metadata":{"labels":{"round":%q}}}`, value)
		_, err := o.send("PATCH", widgetsOf(o.namespace)+"/"+widgetName(number%o.count)+manager, mergePatch, change)
		return err
	})
	return found{"seconds": lasted.Seconds(), "at": now()}, err
}

var (
	counted = regexp.MustCompile(`^apiserver_request_total\{(.*)\} (\S+)$`)
	label   = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// requests counts what the API server has answered so far, by verb and resource; failures apart.
func requests(o options) (found, error) {
	text, err := o.send("GET", "/metrics", "", "")
	if err != nil {
		return nil, err
	}
	totals := found{}
	for line := range strings.Lines(string(text)) {
		parts := counted.FindStringSubmatch(strings.TrimSpace(line))
		if parts == nil {
			continue
		}
		labels := map[string]string{}
		for _, pair := range label.FindAllStringSubmatch(parts[1], -1) {
			labels[pair[1]] = pair[2]
		}
		name := labels["verb"] + " " + labels["resource"]
		if labels["subresource"] != "" {
			name += "/" + labels["subresource"]
		}
		if labels["code"] >= "400" {
			name += " " + labels["code"]
		}
		value, err := strconv.ParseFloat(parts[2], 64)
		if err != nil {
			return nil, err
		}
		before, _ := totals[name].(float64)
		totals[name] = before + value
	}
	return totals, nil
}

func now() float64 { return float64(time.Now().UnixNano()) / 1e9 }
