// controlplane is etcd, kube-apiserver, kube-controller-manager, kube-scheduler
// and kubectl in one file: linked once instead of five times. It acts as the
// one whose name it is called by (a link), or as the one its first argument names.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func command(build func() *cobra.Command) func([]string) int {
	return func(args []string) int {
		c := build()
		c.SetArgs(args)
		return cli.Run(c)
	}
}

var programs = map[string]func(args []string) int{
	"etcd": func(args []string) int {
		etcdmain.Main(append([]string{"etcd"}, args...))
		return 0
	},
	"kube-apiserver":          command(apiserver.NewAPIServerCommand),
	"kube-controller-manager": command(controllers.NewControllerManagerCommand),
	"kube-scheduler":          command(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kubectl": command(func() *cobra.Command {
		return kubectl.NewDefaultKubectlCommand()
	}),
}

func main() {
	name, args := filepath.Base(os.Args[0]), os.Args[1:]
	if _, known := programs[name]; !known && len(args) > 0 {
		name, args = args[0], args[1:]
	}
	run, known := programs[name]
	if !known {
		names := make([]string, 0, len(programs))
		for n := range programs {
			names = append(names, n)
		}
		sort.Strings(names)
		fmt.Fprintf(os.Stderr, "usage: controlplane {%s} [arguments]\n", strings.Join(names, "|"))
		os.Exit(2)
	}
	os.Exit(run(args))
}
