#include "scale.h"

ENTRY { honest(x, y, n / 2, k); }
