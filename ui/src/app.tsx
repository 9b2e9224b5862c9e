// The frame around every page: where one can go, who is signed in, and whether what is shown is fresh.
import { lazy, Suspense, useEffect } from 'react';
import { unfinished } from './model/derive.ts';
import { plural } from './model/format.ts';
import { retryNow, signOut } from './model/live.ts';
import { go, usePlace } from './model/router.ts';
import { useKnown } from './model/store.ts';
import { Overview } from './pages/overview.tsx';
import { SignIn } from './pages/sign-in.tsx';
import type { IconName } from './parts/icon.tsx';
import { Icon } from './parts/icon.tsx';
import { Button, Empty, Link, Ticking } from './parts/small.tsx';
import { Toasts } from './parts/toast.tsx';

const Workloads = lazy(() => import('./pages/workloads.tsx'));
const WorkloadPage = lazy(() => import('./pages/workload-page.tsx'));
const Projects = lazy(() => import('./pages/projects.tsx'));
const Nodes = lazy(() => import('./pages/nodes.tsx'));
const Analytics = lazy(() => import('./pages/analytics.tsx'));
const Activity = lazy(() => import('./pages/activity.tsx'));
const People = lazy(() => import('./pages/people.tsx'));
const Settings = lazy(() => import('./pages/settings.tsx'));

const PAGES: { path: string; title: string; icon: IconName; key: string }[] = [
  { path: '/', title: 'Overview', icon: 'overview', key: 'o' },
  { path: '/workloads', title: 'Workloads', icon: 'workloads', key: 'w' },
  { path: '/projects', title: 'Projects', icon: 'projects', key: 'p' },
  { path: '/nodes', title: 'Nodes', icon: 'nodes', key: 'n' },
  { path: '/analytics', title: 'Analytics', icon: 'analytics', key: 'a' },
  { path: '/activity', title: 'Activity', icon: 'activity', key: 'e' },
  { path: '/people', title: 'People', icon: 'people', key: 'u' },
  { path: '/settings', title: 'Settings', icon: 'settings', key: 's' },
];

/** One workload on a page of its own; it is reached from the list. */
const WORKLOAD = { title: 'Workload' };

export function App() {
  const phase = useKnown(known => known.phase);
  if (phase === 'signed-out') return <SignIn />;
  return (
    <div className="shell">
      <a className="skip" href="#main">
        Skip to the page
      </a>
      <Side />
      <main className="main" id="main" tabIndex={-1}>
        <Lost />
        <Page />
      </main>
      <Toasts />
    </div>
  );
}

function Page() {
  const place = usePlace();
  const phase = useKnown(known => known.phase);
  const root = place.parts[0] ?? '';
  const page = PAGES.find(page => page.path === `/${root}`) ?? (root === 'workload' ? WORKLOAD : undefined);
  useEffect(() => {
    document.title = page ? `${page.title} · Berth` : 'Berth';
  }, [page]);
  useShortcuts();
  if (phase !== 'ready') return <Loading />;
  return (
    <Suspense fallback={<Loading />}>
      {root === '' && <Overview />}
      {root === 'workloads' && <Workloads />}
      {root === 'workload' && <WorkloadPage />}
      {root === 'projects' && <Projects />}
      {root === 'nodes' && <Nodes />}
      {root === 'analytics' && <Analytics />}
      {root === 'activity' && <Activity />}
      {root === 'people' && <People />}
      {root === 'settings' && <Settings />}
      {!page && (
        <Empty title="Page not found">
          <p>
            There is no page at <code>{place.path}</code>. Pages of workloads open from their tab Connect.
          </p>
          <Link className="outside" to="/">
            Go to the overview
          </Link>
        </Empty>
      )}
    </Suspense>
  );
}

function Loading() {
  return (
    <div className="page" aria-busy="true">
      <p className="dim">Loading…</p>
    </div>
  );
}

function Side() {
  const place = usePlace();
  const workloads = useKnown(known => known.workloads);
  const user = useKnown(known => known.user);
  const connection = useKnown(known => known.connection);
  const count = unfinished(workloads).length;
  const words = { live: 'Live', connecting: 'Connecting…', lost: 'Not connected' }[connection.state];
  return (
    <div className="side">
      <div className="brand">
        <img src="/icon.svg" alt="" />
        Berth
      </div>
      <nav aria-label="Pages">
        <ul>
          {PAGES.map(page => {
            const current =
              page.path === '/'
                ? place.path === '/'
                : place.parts[0] === page.path.slice(1) ||
                  (place.parts[0] === 'workload' && page.path === '/workloads');
            return (
              <li key={page.path}>
                <Link to={page.path} current={current}>
                  <Icon name={page.icon} size={18} />
                  {page.title}
                  {page.path === '/workloads' && count > 0 && (
                    <span className="count" title={`${plural(count, 'active workload')} that you can see`}>
                      {count}
                    </span>
                  )}
                </Link>
              </li>
            );
          })}
        </ul>
      </nav>
      <div className="side-foot">
        <span className={`pulse ${connection.state}`}>{words}</span>
        <span className="who">
          <span>{user}</span>
          <Button kind="plain" small onClick={() => void signOut()}>
            Sign out
          </Button>
        </span>
      </div>
    </div>
  );
}

function Lost() {
  const connection = useKnown(known => known.connection);
  const phase = useKnown(known => known.phase);
  if (connection.state !== 'lost') return null;
  const left = (now: number) => {
    const secs = Math.ceil((connection.retryAt - now) / 1000);
    return secs > 0 ? `trying again in ${secs} s` : 'trying again';
  };
  return (
    <div className="banner" role="alert">
      <Icon name="warning" />
      <span>
        The server does not answer. {phase === 'ready' && 'The page shows what was known last; '}
        <Ticking show={left} />.
      </span>
      <Button small onClick={retryNow}>
        Try now
      </Button>
    </div>
  );
}

/** `g` and then the first letter of a page; `/` goes to the search of the page. */
function useShortcuts() {
  useEffect(() => {
    let armed = Number.NEGATIVE_INFINITY;
    const press = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.metaKey || event.ctrlKey || event.altKey || target.closest('input,textarea,select,dialog'))
        return;
      if (event.key === '/') {
        const search = document.querySelector<HTMLInputElement>('input[type=search]');
        if (search) {
          event.preventDefault();
          search.focus();
        }
      } else if (event.key === 'g') armed = event.timeStamp;
      else if (event.timeStamp - armed < 1200) {
        armed = Number.NEGATIVE_INFINITY;
        const page = PAGES.find(page => page.key === event.key);
        if (page) go(page.path);
      }
    };
    window.addEventListener('keydown', press);
    return () => window.removeEventListener('keydown', press);
  }, []);
}
