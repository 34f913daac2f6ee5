// Command controllerruntime is the operator of the benchmarks on controller-runtime.
//
// usage: controllerruntime sync|converge|noop|idle NAMESPACE COUNT KIND LABEL; see bench/peers/reporting.py.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	scheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

const workers = 8

var reconciles atomic.Int64

func tell(event string, count int) {
	line, _ := json.Marshal(map[string]any{"event": event, "count": count})
	fmt.Println(string(line))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// converging gives each Widget a ConfigMap and a status.
type converging struct {
	client.Client
	first sync.Once
}

func (c *converging) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	reconciles.Add(1)
	var widget Widget
	if err := c.Get(ctx, request.NamespacedName, &widget); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: widget.Name, Namespace: widget.Namespace}}
	_, err := controllerutil.CreateOrUpdate(ctx, c.Client, child, func() error {
		if child.Labels == nil {
			child.Labels = map[string]string{}
		}
		child.Labels["app"] = "bench-child"
		child.Data = map[string]string{"size": strconv.FormatInt(widget.Spec.Size, 10), "note": widget.Spec.Note}
		return controllerutil.SetControllerReference(&widget, child, c.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	before := widget.DeepCopy()
	changed := meta.SetStatusCondition(&widget.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Reconciled", ObservedGeneration: widget.Generation,
	})
	if changed || widget.Status.ObservedGeneration != widget.Generation {
		widget.Status.ObservedGeneration = widget.Generation
		if err := c.Status().Patch(ctx, &widget, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, err
		}
	}
	c.first.Do(func() { tell("first", 1) })
	return ctrl.Result{}, nil
}

// looking looks at each Widget and does nothing.
type looking struct {
	client.Client
	count int
	label string

	lock        sync.Mutex
	seen, final map[string]bool
}

func (l *looking) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	total := reconciles.Add(1)
	var widget Widget
	if err := l.Get(ctx, request.NamespacedName, &widget); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	if len(l.seen) < l.count {
		if l.seen[widget.Name] = true; len(l.seen) == l.count {
			tell("initial", l.count)
		}
	}
	if widget.Labels["round"] == l.label && len(l.final) < l.count {
		if l.final[widget.Name] = true; len(l.final) == l.count {
			tell("done", int(total))
		}
	}
	return ctrl.Result{}, nil
}

func main() {
	tell("started", 0)
	workload, namespace, kind, label := os.Args[1], os.Args[2], os.Args[4], os.Args[5]
	count, err := strconv.Atoi(os.Args[3])
	must(err)
	ctrl.SetLogger(logr.Discard())
	config := ctrl.GetConfigOrDie()
	config.QPS = -1 // its own limit of 20 requests a second would be all that is measured
	kinds := runtime.NewScheme()
	must(scheme.AddToScheme(kinds))
	kinds.AddKnownTypes(widgets, &Widget{}, &WidgetList{})
	metav1.AddToGroupVersion(kinds, widgets)
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  kinds,
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Metrics: server.Options{BindAddress: "127.0.0.1:0"}, HealthProbeBindAddress: "127.0.0.1:0",
	})
	must(err)
	ctx := ctrl.SetupSignalHandler()
	options := controller.Options{MaxConcurrentReconciles: workers}
	building := ctrl.NewControllerManagedBy(manager).WithOptions(options)
	switch workload {
	case "sync":
		go follow(ctx, manager, kind)
	case "noop":
		must(building.For(&Widget{}).Complete(&looking{
			Client: manager.GetClient(), count: count, label: label, seen: map[string]bool{}, final: map[string]bool{},
		}))
	default:
		changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
		must(building.For(&Widget{}, changed).Owns(&corev1.ConfigMap{}).Complete(&converging{Client: manager.GetClient()}))
	}
	must(manager.Start(ctx))
	tell("ended", int(reconciles.Load()))
}

func follow(ctx context.Context, manager ctrl.Manager, kind string) {
	var object client.Object = &Widget{}
	var objects client.ObjectList = &WidgetList{}
	if kind == "configmaps" {
		object, objects = &corev1.ConfigMap{}, &corev1.ConfigMapList{}
	}
	_, err := manager.GetCache().GetInformer(ctx, object)
	must(err)
	manager.GetCache().WaitForCacheSync(ctx)
	must(manager.GetCache().List(ctx, objects, client.UnsafeDisableDeepCopy))
	tell("synced", meta.LenList(objects))
}
