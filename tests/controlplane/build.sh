#!/usr/bin/env bash
# build.sh: builds the control plane once per machine and prints the folder it is in.
#
# The folder lies outside the checkout, named after Kubernetes' version and the sources here, so that any change makes
# a new one and an unchanged checkout builds nothing:
#   ${OPSDK_CONTROLPLANE_CACHE:-${XDG_CACHE_HOME:-~/.cache}/opsdk/controlplane}/<version>-<digest>/
# Everything but the folder's name goes to stderr. `--where` only prints the folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
version=$(sed -n 's/^require k8s.io\/kubernetes \(v.*\)/\1/p' go.mod)
digest=$(cat go.mod go.sum main.go build.sh | sha256sum | cut -c1-12)
cache=${OPSDK_CONTROLPLANE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/opsdk/controlplane}
folder=$cache/$version-$digest
if [ "${1:-}" = --where ]; then echo "$folder"; exit; fi
if [ -x "$folder/kubectl" ]; then echo "$folder"; exit; fi

if ! command -v go >/dev/null; then
  echo "controlplane: no go on PATH; install Go $(sed -n 's/^go //p' go.mod) or newer, or set KUBEBUILDER_ASSETS" >&2
  exit 1
fi
mkdir -p "$cache"
if command -v flock >/dev/null; then exec 9>"$cache/.lock"; flock 9; fi # one build at a time; the second finds it done
if [ -x "$folder/kubectl" ]; then echo "$folder"; exit; fi

minor=${version#v1.}; minor=${minor%%.*}
flags=""
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  flags+=" -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=$minor"
  flags+=" -X $package.gitTreeState=clean -X $package.gitCommit=module"
done
echo "controlplane: building Kubernetes $version from its Go modules (once per machine: 8 to 25 minutes)" >&2
work=$(mktemp -d "$cache/.build.XXXXXX")
trap 'rm -rf "$work"' EXIT
started=$SECONDS
CGO_ENABLED=0 GOFLAGS="-buildvcs=false -modcacherw" GOTOOLCHAIN=${GOTOOLCHAIN:-local} \
  go build -mod=readonly -trimpath -tags grpcnotrace,notest,selinux -ldflags "-s -w$flags" -o "$work/controlplane" . 1>&2
for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubectl; do ln -s controlplane "$work/$name"; done
rm -rf "$folder"; mv "$work" "$folder"
echo "controlplane: built in $((SECONDS - started)) s: $folder" >&2
echo "$folder"
