import './styles/fonts.css';
import './styles/tokens.css';
import './styles/shell.css';
import './styles/parts.css';
import './styles/pages.css';
import './styles/views.css';
import { createRoot } from 'react-dom/client';
import { listen } from './api/client.ts';
import { App } from './app.tsx';
import { begin, end, refresh, signIn } from './model/live.ts';
import { refuse } from './pages/sign-in.tsx';
import { trouble } from './parts/failure.tsx';

/** The server has another dashboard now; what somebody is typing is not thrown away for it. */
function reloadWhenIdle() {
  const isBusy = document.querySelector('dialog[open]') !== null;
  const last = Number(sessionStorage.getItem('berth.reloaded') ?? '0');
  if (isBusy || Date.now() - last < 30_000) return;
  sessionStorage.setItem('berth.reloaded', String(Date.now()));
  window.location.reload();
}

// Whoever is refused may have other roles by now than the page thinks.
listen({ stale: reloadWhenIdle, signedOut: end, refused: () => void refresh('owners') });

// The code is taken out of the address at once, so that it is in no history and no bookmark.
const code = /^#code=([0-9a-f]+)$/.exec(window.location.hash)?.[1];
if (code !== undefined) {
  window.history.replaceState(null, '', window.location.pathname + window.location.search);
  signIn({ code }).catch(error => {
    // Somebody who is signed in already has no need of the link.
    begin();
    refuse(trouble(error));
  });
} else {
  begin();
}

createRoot(document.getElementById('root')!).render(<App />);
