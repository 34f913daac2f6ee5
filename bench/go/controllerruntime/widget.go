package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var widgets = schema.GroupVersion{Group: "bench.opsdk.dev", Version: "v1"}

type WidgetSpec struct {
	Size int64  `json:"size"`
	Note string `json:"note,omitempty"`
}

type WidgetStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              WidgetSpec   `json:"spec"`
	Status            WidgetStatus `json:"status,omitempty"`
}

type WidgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Widget `json:"items"`
}

// What controller-gen would write.

func (w *Widget) DeepCopyInto(into *Widget) {
	*into = *w
	w.ObjectMeta.DeepCopyInto(&into.ObjectMeta)
	into.Status.Conditions = nil
	for _, condition := range w.Status.Conditions {
		into.Status.Conditions = append(into.Status.Conditions, *condition.DeepCopy())
	}
}

func (w *Widget) DeepCopy() *Widget {
	copied := &Widget{}
	w.DeepCopyInto(copied)
	return copied
}

func (w *Widget) DeepCopyObject() runtime.Object { return w.DeepCopy() }

func (l *WidgetList) DeepCopyObject() runtime.Object {
	copied := &WidgetList{TypeMeta: l.TypeMeta, Items: make([]Widget, len(l.Items))}
	l.ListMeta.DeepCopyInto(&copied.ListMeta)
	for number := range l.Items {
		l.Items[number].DeepCopyInto(&copied.Items[number])
	}
	return copied
}
