// How to get to a workload: its pages, and what to type.
import { useState } from 'react';
import { call, withQuery, workloadPath } from '../api/client.ts';
import type { Workload } from '../api/types.ts';
import { quoted } from '../model/command.ts';
import { isFinal } from '../model/status.ts';
import { trouble } from '../parts/failure.tsx';
import { Button, Copyable, Empty, Link } from '../parts/small.tsx';
import { sayTrouble } from '../parts/toast.tsx';

export function WorkloadConnect({ workload, enters }: { workload: Workload; enters: boolean }) {
  const which = `${quoted(workload.name)} -p ${quoted(workload.project)}`;
  const ports = workload.request.ports ?? [];
  const runs = workload.status === 'Running';
  return (
    <>
      {enters && runs && ports.length > 0 && (
        <div className="section">
          <h3>In the browser</h3>
          {ports.map((port, at) => (
            <Port key={port} workload={workload} port={port} url={workload.urls?.[at]} />
          ))}
          <p className="dim">A link works once, for the first browser that opens it.</p>
        </div>
      )}
      {enters && runs && (
        <div className="section">
          <h3>In a terminal</h3>
          <p>
            <Link to={`/workloads/${workload.id}?tab=terminal`}>Open one in this page</Link>, or type:
          </p>
          <Copyable text={`berth bash ${which}`} />
          <Copyable text={`berth exec ${which} -- nvidia-smi`} />
          {ports.length > 0 && <Copyable text={`berth url ${which}`} />}
          <Copyable text={`berth port-forward ${which} ${ports[0] ?? 8888}`} />
        </div>
      )}
      {!runs && (
        <Empty title={isFinal(workload.status) ? 'It has ended' : 'It does not run yet'}>
          <p>You can connect while it runs.</p>
        </Empty>
      )}
      <div className="section">
        <h3>From the command line</h3>
        <Copyable text={`berth logs ${which} -f`} />
        <Copyable text={`berth get ${which}`} />
        {!isFinal(workload.status) && <Copyable text={`berth why ${which}`} />}
      </div>
    </>
  );
}

/** A port that it declared. A page of a workload is opened by a link that is good once; what it may do ends with its own address. */
function Port({ workload, port, url }: { workload: Workload; port: number; url: string | undefined }) {
  const [link, setLink] = useState<string | null>(null);
  const make = async () => {
    const { body } = await call<{ url: string }>(
      'POST',
      withQuery(workloadPath(workload, '/link'), { port }),
    );
    if (!/^https?:\/\//.test(body.url)) throw new Error('the server made no link');
    return body.url;
  };
  const tell = (error: unknown) => sayTrouble(trouble(error));
  const open = () => make().then(made => window.open(made, '_blank', 'noopener,noreferrer'), tell);
  return (
    <div className="port">
      <span>
        Port <b>{port}</b>
      </span>
      <div className="actions">
        <Button small icon="link" label={`Open port ${port}`} onClick={() => void open()}>
          Open
        </Button>
        <Button small label={`Make a link to port ${port}`} onClick={() => void make().then(setLink, tell)}>
          Link
        </Button>
      </div>
      <Copyable text={link ?? url ?? ''} label={`Copy the address of port ${port}`} />
    </div>
  );
}
