// The indices of a sweep: which succeeded, which failed and with what, and where their logs are.
import { useEffect, useState } from 'react';
import { get } from '../api/client.ts';
import type { Workload } from '../api/types.ts';
import { Ago, StatusLabel } from '../parts/small.tsx';

type Index = NonNullable<Workload['indices']>[number];

/** Looked at again this often while it changes. */
const AGAIN_MS = 2000;

export function WorkloadIndices({ workload }: { workload: Workload }) {
  const [indices, setIndices] = useState<Index[]>([]);
  useEffect(() => {
    const stop = new AbortController();
    const timer = setTimeout(
      () => {
        get<Workload>(`/workloads/${workload.id}`, stop.signal).then(
          told => setIndices(told.indices ?? []),
          () => {},
        );
      },
      indices.length === 0 ? 0 : AGAIN_MS,
    );
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [workload, indices.length]);
  if (indices.length === 0) return null;
  return (
    <div className="section">
      <h3>Indices</h3>
      <div className="panel">
        <table>
          <thead>
            <tr>
              <th scope="col">Index</th>
              <th scope="col">Status</th>
              <th scope="col">Worker</th>
              <th scope="col">Attempts</th>
              <th scope="col">Exit</th>
              <th scope="col">Ended</th>
            </tr>
          </thead>
          <tbody>
            {indices.map(index => (
              <tr key={index.index}>
                <td>{index.index}</td>
                <td>
                  <StatusLabel status={index.status} />
                </td>
                <td>{index.worker ?? '–'}</td>
                <td>{index.attempts}</td>
                <td>{exit(index)}</td>
                <td>
                  <Ago at={index.ended_at} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </div>
  );
}

function exit({ exit_code, signal }: Index): string {
  if (exit_code != null) return `code ${exit_code}`;
  return signal != null ? `signal ${signal}` : '–';
}
