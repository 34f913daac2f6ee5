package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	serverSideApply = "application/apply-patch+yaml"
	mergePatch      = "application/merge-patch+json"
	plainJSON       = "application/json"
	manager         = "?fieldManager=bench-loader"
	agent           = "bench-loader"
)

// server is an API server; requests to it are bare HTTP, so that the load costs as little as possible.
type server struct {
	url  string
	http *http.Client
}

func connect(kubeconfig string) (*server, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return &server{url: config.Host, http: client}, nil
}

// send returns the body of a successful answer. What the server is too busy for is sent again.
func (s *server) send(method, path, contentType, body string) ([]byte, error) {
	for {
		request, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		request.Header.Set("User-Agent", agent)
		if body != "" {
			request.Header.Set("Content-Type", contentType)
		}
		answer, err := s.http.Do(request)
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		switch {
		case err != nil:
			return nil, err
		case answer.StatusCode == http.StatusTooManyRequests:
			time.Sleep(300 * time.Millisecond)
		case answer.StatusCode >= 300:
			return nil, fmt.Errorf("%s %s: %d: %.200s", method, path, answer.StatusCode, text)
		default:
			return text, nil
		}
	}
}

func (s *server) read(path string, into any) error {
	text, err := s.send("GET", path, "", "")
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// spread does work(0) to work(count-1), so many at once, and says how long that took. The first error ends it.
func spread(count, atOnce int, work func(int) error) (time.Duration, error) {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var workers sync.WaitGroup
	began := time.Now()
	for range atOnce {
		workers.Go(func() {
			for failed.Load() == nil {
				number := int(next.Add(1)) - 1
				if number >= count {
					return
				}
				if err := work(number); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	workers.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return time.Since(began), nil
}
